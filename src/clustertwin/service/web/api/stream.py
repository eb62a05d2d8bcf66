"""Server-sent events: one message for each new snapshot, so that pages update without polling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from clustertwin.service.live.problems import problems
from clustertwin.service.live.snapshot import ServiceState, Snapshot
from clustertwin.service.web.api.json_values import plain
from clustertwin.service.web.contract import RouteGroup
from clustertwin.service.web.unsettled_events import open_events

POLL_S = 0.2
KEEP_ALIVE_S = 15.0
RECHECK_S = 1.0  # a stream ends this long after its token was removed or has expired


def router(state: ServiceState) -> APIRouter:
    api = APIRouter(tags=["stream"])

    @api.get("/stream", summary="Stream each new snapshot as a server-sent event", response_class=StreamingResponse)
    async def stream(request: Request) -> StreamingResponse:
        return StreamingResponse(_messages(state, request, request.state.is_allowed), media_type="text/event-stream")

    return api


ROUTES = RouteGroup(paths=("/stream",), router=router)


async def _messages(state: ServiceState, request: Request, is_allowed: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Poll for snapshots. Polling needs no thread for each connected page."""
    sent, phase, idle_s, checked_s = -1, "", 0.0, 0.0
    while not (state.ending() or await request.is_disconnected()):
        checked_s += POLL_S
        if checked_s >= RECHECK_S:
            checked_s = 0.0
            if not is_allowed():
                return
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
    events = open_events(state).events
    return {
        "number": snapshot.number,
        "now_s": snapshot.now_s,
        "phase": snapshot.phase,
        "ready_in_s": snapshot.ready_in_s,
        "replay_ended": snapshot.replay_ended,
        "shadow": state.shadow.on,
        "open_events": len(events),
        "newest": events[0].id if events else None,
        "worst": [[node.node, plain(node.score)] for node in snapshot.nodes[:5]],
        "lag_s": round(snapshot.lag_s, 3),
        "stride_s": snapshot.stride_s,
        "problems": problems(state),
    }
