"""The first page: every node over the last hour, worst first, and what is strange now."""

from __future__ import annotations

from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from clustertwin.service.live.snapshot import ServiceState, Snapshot
from clustertwin.service.web.pages import canvas_data
from clustertwin.service.web.pages.rendering import render

ROWS = 100  # of the table; a search finds the others


def router(state: ServiceState) -> APIRouter:
    pages = APIRouter(include_in_schema=False)

    @pages.get("/")
    def page(request: Request, q: str = "") -> HTMLResponse:
        found = [node for node in state.snapshot.nodes if q.lower() in node.node.lower()]
        return render(
            request, state, "cluster.html", q=q, nodes=found[:ROWS], found=len(found), past=_past(state.snapshot)
        )

    @pages.get("/pictures/cluster")
    def picture() -> dict[str, Any]:
        return canvas_data.cluster(state.snapshot)

    return pages


def _past(snapshot: Snapshot) -> dict[str, list[float]]:
    """Node -> its last 60 scores, for the sparklines."""
    history = snapshot.history
    return {node: np.asarray(history.score[i, -60:]).tolist() for i, node in enumerate(history.nodes)}
