"""The first page: the score of every node over the last hour, and the open events."""

from __future__ import annotations

from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from clustertwin.service.live.snapshot import ServiceState, Snapshot
from clustertwin.service.store.event_store import Filter
from clustertwin.service.web.contract import Page, Search
from clustertwin.service.web.pages import canvas_data
from clustertwin.service.web.pages.rendering import render

ROWS = 100  # of the table; search for the others


def router(state: ServiceState) -> APIRouter:
    routes = APIRouter()

    @routes.get("/")
    def show(request: Request, q: Search = "") -> HTMLResponse:
        nodes = [node for node in state.snapshot.nodes if q.lower() in node.node.lower()]
        closed = [] if state.snapshot.events else state.store.events(Filter(open=False), 1)
        values: dict[str, Any] = {"q": q, "nodes": nodes[:ROWS], "matches": len(nodes), "newest_closed": closed[:1]}
        return render(request, state, PAGE, "cluster.html", recent_scores=_recent_scores(state.snapshot), **values)

    @routes.get("/pictures/cluster")
    def picture() -> dict[str, Any]:
        return canvas_data.cluster(state.snapshot)

    return routes


PAGE = Page(title="Cluster", key="c", paths=("/",), router=router)


def _recent_scores(snapshot: Snapshot) -> dict[str, list[float]]:
    """The last 60 scores of each node, for the sparklines."""
    history = snapshot.history
    return {node: np.asarray(history.score[i, -60:]).tolist() for i, node in enumerate(history.nodes)}
