"""One node: its threads second by second, the jobs on them, and one thread, measured and reconstructed."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import HTMLResponse

from clustertwin.core.channels import SPREAD
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.web.api.json_values import plain
from clustertwin.service.web.channel_lines import channel_lines
from clustertwin.service.web.contract import Page
from clustertwin.service.web.pages import canvas_data, thread_reconstruction
from clustertwin.service.web.pages.rendering import render
from clustertwin.service.web.unsettled_events import open_events

Shown = Literal["busy", "user", "system", "iowait"]


def router(state: ServiceState) -> APIRouter:
    routes = APIRouter()

    @routes.get("/nodes/{node:path}")
    def show(request: Request, node: str, cpu: int | None = None) -> HTMLResponse:
        snapshot = state.snapshot
        node_state = next((node_state for node_state in snapshot.nodes if node_state.node == node), None)
        if node_state is None:
            return render(request, state, PAGE, "error.html", 404, title="Not found", text=f"There is no node {node}.")
        jobs = [job for job in snapshot.jobs if node in job.nodes]
        events = [event for event in open_events(state).events if node in event.nodes]
        unusual = canvas_data.unusual_threads(snapshot, node)
        forecasts = [each for each in snapshot.memory_forecasts if each.node == node]
        values: dict[str, Any] = {
            "forecasts": forecasts,
            "node": node_state,
            "jobs": jobs,
            "events": events,
            "cpu": cpu,
        }
        return render(request, state, PAGE, "node.html", unusual=unusual, **values)

    @routes.get("/pictures/node")
    def picture(node: str, channel: Shown = "busy") -> dict[str, Any]:
        answer = canvas_data.node(state.snapshot, node, channel)
        if answer is None:
            raise HTTPException(404, f"no node {node}")
        return answer

    @routes.get("/pictures/node-channels")
    def node_channels(node: str) -> dict[str, Any]:
        moment = state.snapshot.moment
        lines = [
            {"name": line.name, "label": line.label, "help": line.help, "now": plain(line.now)}
            | {"levels": canvas_data.encoded(canvas_data.levels(line.values))}
            for line in channel_lines(moment, node)
            # Memory and pressure are shown as unknown; of the others, what this node never reports is left out.
            if line.name in SPREAD.names or not np.isnan(line.values).all()
        ]
        return {"end_s": moment.end_s if moment is not None else None, "lines": lines}

    @routes.get("/pictures/thread")
    def thread(node: str, cpu: int) -> dict[str, Any]:
        moment = state.snapshot.moment
        answer = thread_reconstruction.thread(state.detector, moment, node, cpu) if moment is not None else None
        if answer is None:
            raise HTTPException(404, f"no thread {cpu} on node {node}")
        return answer

    return routes


PAGE = Page(title="Node", paths=("/nodes",), router=router)
