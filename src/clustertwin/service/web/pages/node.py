"""One node: its threads second by second, the jobs on them, and a thread as the model expected it."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import HTMLResponse

from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.web.api.json_values import plain
from clustertwin.service.web.channel_lines import channel_lines
from clustertwin.service.web.pages import canvas_data, thread_reconstruction
from clustertwin.service.web.pages.rendering import render

Shown = Literal["busy", "user", "system", "iowait"]


def router(state: ServiceState) -> APIRouter:
    pages = APIRouter(include_in_schema=False)

    @pages.get("/nodes/{node:path}")
    def page(request: Request, node: str, cpu: int | None = None) -> HTMLResponse:
        snapshot = state.snapshot
        found = next((one for one in snapshot.nodes if one.node == node), None)
        if found is None:
            return render(request, state, "missing.html", 404, what=f"No node {node} is being watched.")
        jobs = [job for job in snapshot.jobs if node in job.nodes]
        events = [event for event in snapshot.events if node in event.nodes]
        return render(request, state, "node.html", node=found, jobs=jobs, events=events, cpu=cpu)

    @pages.get("/pictures/node")
    def picture(node: str, channel: Shown = "busy") -> dict[str, Any]:
        found = canvas_data.node(state.snapshot, node, channel)
        if found is None:
            raise HTTPException(404, f"no node {node}")
        return found

    @pages.get("/pictures/node-channels")
    def node_channels(node: str) -> dict[str, Any]:
        moment = state.snapshot.moment
        lines = [
            {"name": line.name, "label": line.label, "help": line.help, "now": plain(line.now)}
            | {"levels": canvas_data.encoded(canvas_data.levels(line.values))}
            for line in channel_lines(moment, node)
        ]
        return {"end_s": moment.end_s if moment is not None else None, "lines": lines}

    @pages.get("/pictures/thread")
    def thread(node: str, cpu: int) -> dict[str, Any]:
        moment = state.snapshot.moment
        found = thread_reconstruction.thread(state.detector, moment, node, cpu) if moment is not None else None
        if found is None:
            raise HTTPException(404, f"no thread {cpu} on node {node}")
        return found

    return pages
