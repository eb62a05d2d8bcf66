"""Server-sent events: one message for each new snapshot, so that pages update without polling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import cached_property
from typing import Any

import orjson
from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from clustertwin.core.errors import Overloaded
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

    @cached_property
    def threads(self) -> CapacityLimiter:
        """One for all streams, so that they leave the threads of the pages to the pages."""
        return CapacityLimiter(1)

    def newest(self) -> tuple[tuple[int, str], bytes]:
        """What identifies the message, and the message. The phase of an old snapshot becomes stale."""
        return self.known() or self._make()

    def known(self) -> tuple[tuple[int, str], bytes] | None:
        """The newest message, if it is made already."""
        snapshot, made = self._state.snapshot, self._made
        return made if made is not None and made[0] == (snapshot.number, snapshot.phase) else None

    def _make(self) -> tuple[tuple[int, str], bytes]:
        snapshot = self._state.snapshot
        data = orjson.dumps(_brief(snapshot, self._state))
        message = b"event: snapshot\nid: %d\ndata: %s\n\n" % (snapshot.number, data)
        self._made = (snapshot.number, snapshot.phase), message
        return self._made


async def _messages(
    snapshots: SnapshotMessages, request: Request, is_allowed: Callable[[], bool], is_over: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Poll for snapshots. Polling needs no thread for each connected page; what reads the database needs one."""
    sent: tuple[int, str] | None = None
    idle_s = checked_s = 0.0
    while not (is_over() or await request.is_disconnected()):
        checked_s += POLL_S
        if checked_s >= RECHECK_S:
            checked_s = 0.0
            if not await to_thread.run_sync(is_allowed, limiter=snapshots.threads):
                return
        newest = snapshots.known() or await _made(snapshots)
        if newest is not None and newest[0] != sent:
            sent, idle_s = newest[0], 0.0
            yield newest[1]
        elif idle_s >= KEEP_ALIVE_S:
            idle_s = 0.0
            yield b": keep-alive\n\n"
        await asyncio.sleep(POLL_S)
        idle_s += POLL_S


async def _made(snapshots: SnapshotMessages) -> tuple[tuple[int, str], bytes] | None:
    """The newest message, from a thread; None if the database is too slow, and the next attempt can succeed."""
    try:
        return await to_thread.run_sync(snapshots.newest, limiter=snapshots.threads)
    except Overloaded:
        return None


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
