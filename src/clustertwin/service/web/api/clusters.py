"""The joined clusters: their totals, each cluster, and the nodes and open events of all of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request

from clustertwin.service.live.members.member_board import MemberBoard, MemberState
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.web.api.json_values import plain
from clustertwin.service.web.contract import RouteGroup, Search

Limit = Annotated[int, Query(ge=1, le=10_000)]


def router(state: ServiceState, clock: Callable[[], float] = time.monotonic) -> APIRouter:
    api = APIRouter(tags=["clusters"])

    def board(request: Request) -> MemberBoard:
        if state.members is None:
            raise HTTPException(404, "no cluster is joined; add a table [clusters.NAME] to the configuration")
        return state.members.shown_to(request.state.who, request.state.role)

    @api.get("/clusters", summary="List the joined clusters with their totals")
    def clusters(request: Request) -> dict[str, Any]:
        shown, now_s = board(request), clock()
        return {"totals": plain(shown.totals(now_s)), "clusters": [_cluster(each, now_s) for each in shown.members]}

    @api.get("/clusters/nodes", summary="List nodes of all watched clusters, highest score first")
    def nodes(request: Request, q: Search = "", limit: Limit = 100) -> dict[str, Any]:
        found = board(request).nodes(clock(), q)
        rows = [{"cluster": member.name, **plain(node.model_dump())} for member, node in found[:limit]]
        return {"total": len(found), "nodes": rows}

    @api.get("/clusters/events", summary="List the newest open events of all watched clusters, newest first")
    def events(request: Request, limit: Limit = 100) -> list[dict[str, Any]]:
        return [
            {
                "cluster": member.name,
                **plain(event.model_dump()),
                "link": f"{member.settings.address}/events/{event.id}",
            }
            for member, event in board(request).events(clock())[:limit]
        ]

    return api


ROUTES = RouteGroup(paths=("/clusters",), router=router)


def _cluster(member: MemberState, now_s: float) -> dict[str, Any]:
    """One cluster. Its numbers are those of its last answer, or null."""
    last = member.summary
    names = (
        "phase",
        "threads",
        "alarming",
        "unknown",
        "jobs",
        "open_events",
        "lag_s",
        "stride_s",
        "model",
        "threshold",
    )
    return {
        "cluster": member.name,
        "link": member.settings.address,
        "watched": member.is_watched(now_s),
        "age_s": plain(member.age_s(now_s)),
        "problem": member.problem(now_s),
        "nodes": len(last.nodes) if last else None,
        **{name: plain(getattr(last, name)) if last else None for name in names},
    }
