"""Ask every joined cluster for its summary, all from one thread -> a published board.

A cluster that is slow, dead or lies is named and delays no other: each request has a deadline and a limit of bytes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from clustertwin.core.errors import SourceError
from clustertwin.service.live.feeds.source_setup import SourceSettings
from clustertwin.service.live.members.member_board import MemberBoard, MemberState
from clustertwin.service.live.members.member_settings import MemberSettings
from clustertwin.service.live.members.member_summary import parse_summary
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.ingest.sources.http_sweep import HttpSweep

SUMMARY = "/api/v1/summary"
EVERY_S = 2.0
DEADLINE_S = 5.0
#: 20,000 nodes with names of the longest kind are not more.
MOST_BYTES = 16 << 20


class MemberWatch:
    def __init__(
        self,
        members: Sequence[MemberSettings],
        publish: Callable[[MemberBoard], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._members = [MemberState(settings) for settings in members]
        self._sweep = HttpSweep([_endpoint(settings) for settings in members])
        self._publish, self._clock = publish, clock
        publish(MemberBoard(tuple(self._members)))

    def turn(self, within_s: float = EVERY_S) -> None:
        """Ask those that owe no answer, and publish what arrives in time. A later answer counts in a later turn."""
        pending = self._sweep.pending
        for number in range(len(self._members)):
            if number not in pending:
                self._sweep.request(number, SUMMARY, {}, "application/json")
        for number, answer in self._sweep.responses(within_s):
            self._members[number] = self._heard(self._members[number], answer)
        self._publish(MemberBoard(tuple(self._members)))

    def _heard(self, member: MemberState, answer: bytes | SourceError) -> MemberState:
        try:
            if isinstance(answer, SourceError):
                raise answer
            summary = parse_summary(answer, member.settings.url)
        except SourceError as failure:
            return replace(member, failure=str(failure))
        return replace(member, summary=summary, heard_s=self._clock(), failure="")

    def close(self) -> None:
        self._sweep.close()


def watch(
    members: MemberWatch, stop: threading.Event, fence: Callable[[], AbstractContextManager[None]] = nullcontext
) -> None:
    """Ask until `stop` is set; the work of a thread beside the loop. The ages of summaries tell if nothing is asked."""
    try:
        while not stop.is_set():
            begun_s = time.monotonic()
            with fence():
                members.turn()
            stop.wait(max(EVERY_S - (time.monotonic() - begun_s), 0.05))
    finally:
        members.close()


def _endpoint(settings: MemberSettings) -> Endpoint:
    secrets = SourceSettings(token_file=settings.token_file, ca_file=settings.ca_file)
    return replace(secrets.endpoint(settings.url, DEADLINE_S), most_bytes=MOST_BYTES)
