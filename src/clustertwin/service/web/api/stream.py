"""Server-sent events: a line for each new snapshot, so that a page moves without asking."""

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

LOOK_S = 0.2
KEEP_ALIVE_S = 15.0


def router(state: ServiceState) -> APIRouter:
    api = APIRouter(tags=["stream"])

    @api.get("/stream", summary="Each new second, as server-sent events", response_class=StreamingResponse)
    async def stream(request: Request) -> StreamingResponse:
        return StreamingResponse(_lines(state, request), media_type="text/event-stream")

    return api


async def _lines(state: ServiceState, request: Request) -> AsyncIterator[bytes]:
    """A snapshot is looked for, not waited for: any number of pages cost no thread."""
    seen, quiet_s = -1, 0.0
    while not (state.ending() or await request.is_disconnected()):
        snapshot = state.snapshot
        if snapshot.number != seen:
            seen, quiet_s = snapshot.number, 0.0
            yield b"event: snapshot\nid: %d\ndata: %s\n\n" % (seen, orjson.dumps(_brief(snapshot, state)))
        elif quiet_s >= KEEP_ALIVE_S:
            quiet_s = 0.0
            yield b": still here\n\n"
        await asyncio.sleep(LOOK_S)
        quiet_s += LOOK_S


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
