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
MOST_STREAMS = 128  # beyond it the oldest ends; a page opens its stream again by itself


def router(state: ServiceState) -> APIRouter:
    api = APIRouter(tags=["stream"])
    snapshots = SnapshotMessages(state)
    streams: dict[object, None] = {}  # oldest first

    @api.get("/stream", summary="Stream each new snapshot as a server-sent event", response_class=StreamingResponse)
    async def stream(request: Request) -> StreamingResponse:
        own = object()
        streams[own] = None
        while len(streams) > MOST_STREAMS:
            del streams[next(iter(streams))]

        def is_over() -> bool:
            return own not in streams or state.ending()

        async def messages() -> AsyncIterator[bytes]:
            try:
                async for message in _messages(snapshots, request, request.state.is_allowed, is_over):
                    yield message
            finally:
                streams.pop(own, None)

        return StreamingResponse(messages(), media_type="text/event-stream")

    return api


ROUTES = RouteGroup(paths=("/stream",), router=router)


class SnapshotMessages:
    """The message of the newest snapshot. It is made once for all streams: it reads files, and pages are many."""

    def __init__(self, state: ServiceState) -> None:
        self._state = state
        self._made: tuple[tuple[int, str], bytes] | None = None

    def newest(self) -> tuple[tuple[int, str], bytes]:
        """What identifies the message, and the message. The phase of an old snapshot becomes stale."""
        snapshot = self._state.snapshot
        key = snapshot.number, snapshot.phase
        if self._made is None or self._made[0] != key:
            data = orjson.dumps(_brief(snapshot, self._state))
            self._made = key, b"event: snapshot\nid: %d\ndata: %s\n\n" % (snapshot.number, data)
        return self._made


async def _messages(
    snapshots: SnapshotMessages, request: Request, is_allowed: Callable[[], bool], is_over: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Poll for snapshots. Polling needs no thread for each connected page."""
    sent: tuple[int, str] | None = None
    idle_s = checked_s = 0.0
    while not (is_over() or await request.is_disconnected()):
        checked_s += POLL_S
        if checked_s >= RECHECK_S:
            checked_s = 0.0
            if not is_allowed():
                return
        key, message = snapshots.newest()
        if key != sent:
            sent, idle_s = key, 0.0
            yield message
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
