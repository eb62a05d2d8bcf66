"""All clusters: the joined clusters or shards, the highest scores among all their nodes, and their open events."""

from __future__ import annotations

import time
from collections.abc import Callable

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from clustertwin.service.live.members.member_board import MemberBoard
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.web.contract import Page, Search
from clustertwin.service.web.pages.rendering import render

ROWS = 100
EVENTS = 50


def router(state: ServiceState, clock: Callable[[], float] = time.monotonic) -> APIRouter:
    routes = APIRouter()

    @routes.get("/clusters")
    def show(request: Request, q: Search = "") -> HTMLResponse:
        board = (state.members or MemberBoard(())).shown_to(request.state.who, request.state.role)
        now_s = clock()
        nodes, events = board.nodes(now_s, q), board.events(now_s)
        return render(
            request, state, PAGE, "clusters.html", q=q, board=board, clock_s=now_s, totals=board.totals(now_s),
            nodes=nodes[:ROWS], matches=len(nodes), events=events[:EVENTS],
        )  # fmt: skip

    return routes


#: Without a key: only a service that joins clusters shows it in the navigation bar.
PAGE = Page(title="All clusters", paths=("/clusters",), router=router)
