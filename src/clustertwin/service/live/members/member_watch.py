"""Ask every joined cluster for its summary, all from one thread -> a published board.

A cluster that is slow, dead or faulty is named and delays no other: each request has a deadline and a limit of bytes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from time import thread_time

from clustertwin.core.errors import SourceError
from clustertwin.service.live.beside.side_work import Fence
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
#: All clusters may answer at the same time. A thousand nodes that score themselves have 256 KB each; one needs 1 KB.
MOST_BYTES_TOGETHER = 256 << 20
#: Nodes of all clusters; the objects of one take about a kilobyte.
MOST_NODES_TOGETHER = 200_000
#: After an answer that took some time to read, a cluster rests for this many times that time, at most for this long.
REST, LONGEST_REST_S = 10, 30.0


class MemberWatch:
    def __init__(
        self,
        members: Sequence[MemberSettings],
        publish: Callable[[MemberBoard], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._members = [MemberState(settings) for settings in members]
        self._sweep = HttpSweep([replace(_endpoint(settings), most_bytes=most_bytes(members)) for settings in members])
        self._rest_until_s: dict[int, float] = {}
        self._publish, self._clock = publish, clock
        publish(MemberBoard(tuple(self._members)))

    def turn(self, within_s: float = EVERY_S) -> None:
        """Ask those that owe no answer, and publish what arrives in time. A later answer counts in a later turn."""
        pending = self._sweep.pending
        for number in range(len(self._members)):
            if number not in pending and not self._clock() < self._rest_until_s.get(number, 0.0):
                self._sweep.request(number, SUMMARY, {}, "application/json")
        for number, answer in self._sweep.responses(within_s):
            begun_s = thread_time()
            self._members[number] = self._heard(self._members[number], answer)
            spent_s = thread_time() - begun_s
            if REST * spent_s > EVERY_S:
                self._rest_until_s[number] = self._clock() + min(REST * spent_s, LONGEST_REST_S)
        self._publish(MemberBoard(tuple(self._members)))

    def _heard(self, member: MemberState, answer: bytes | SourceError) -> MemberState:
        try:
            if isinstance(answer, SourceError):
                raise answer
            summary = parse_summary(answer, member.settings.url)
            others = sum(len(m.summary.nodes) for m in self._members if m.summary and m.settings is not member.settings)
            if others + len(summary.nodes) > MOST_NODES_TOGETHER:
                raise SourceError(
                    f"{member.settings.url}: more than {MOST_NODES_TOGETHER} nodes in all joined clusters, "
                    "which is the limit"
                )
        except SourceError as failure:
            return replace(member, failure=str(failure))
        return replace(member, summary=summary, heard_s=self._clock(), failure="")

    def close(self) -> None:
        self._sweep.close()


def watch(members: MemberWatch, stop: threading.Event, fence: Fence = nullcontext) -> None:
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
    return secrets.endpoint(settings.url, DEADLINE_S).with_safe_token()


def most_bytes(members: Sequence[MemberSettings]) -> int:
    """The longest answer of one of them."""
    return min(MOST_BYTES, MOST_BYTES_TOGETHER // max(len(members), 1))
