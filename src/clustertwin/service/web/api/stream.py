"""Server-sent events: one message for each new snapshot, so that pages update without polling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from clustertwin.service.live.problems import problems
from clustertwin.service.live.snapshot import ServiceState, Snapshot
from clustertwin.service.web.api.json_values import plain
from clustertwin.service.web.contract import RouteGroup

POLL_S = 0.2
KEEP_ALIVE_S = 15.0


def router(state: ServiceState) -> APIRouter:
    api = APIRouter(tags=["stream"])

    @api.get("/stream", summary="Stream each new snapshot as a server-sent event", response_class=StreamingResponse)
    async def stream(request: Request) -> StreamingResponse:
        return StreamingResponse(_messages(state, request), media_type="text/event-stream")

    return api


ROUTES = RouteGroup(paths=("/stream",), router=router)


async def _messages(state: ServiceState, request: Request) -> AsyncIterator[bytes]:
    """Poll for snapshots. Polling needs no thread for each connected page."""
    sent, phase, idle_s = -1, "", 0.0
    while not (state.ending() or await request.is_disconnected()):
        snapshot = state.snapshot
        if snapshot.number != sent or snapshot.phase != phase:  # the phase of an old snapshot becomes stale
            sent, phase, idle_s = snapshot.number, snapshot.phase, 0.0
            yield b"event: snapshot\nid: %d\ndata: %s\n\n" % (sent, orjson.dumps(_brief(snapshot, state)))
        elif idle_s >= KEEP_ALIVE_S:
            idle_s = 0.0
            yield b": keep-alive\n\n"
        await asyncio.sleep(POLL_S)
        idle_s += POLL_S


def _brief(snapshot: Snapshot, state: ServiceState) -> dict[str, Any]:
    return {
        "number": snapshot.number,
        "now_s": snapshot.now_s,
        "phase": snapshot.phase,
        "ready_in_s": snapshot.ready_in_s,
        "open_events": len(snapshot.events),
        "newest": snapshot.events[0].id if snapshot.events else None,
        "worst": [[node.node, plain(node.score)] for node in snapshot.nodes[:5]],
        "lag_s": round(snapshot.lag_s, 3),
        "stride_s": snapshot.stride_s,
        "problems": problems(state),
    }
