"""A live source whose counters a test advances, and the turns of a loop that reads it."""

from __future__ import annotations

import numpy as np
from tests.service.conftest import Clock

from clustertwin.core.errors import SourceError
from clustertwin.service.live.feeds.live_feed import LiveFeed
from clustertwin.service.live.loop import Loop
from clustertwin.service.live.snapshot import Snapshot
from clustertwin.telemetry.ingest.counters import MODES, NodeReading

#: A loop scores for the first time with the 101st reading: the first has no rates, and a window has 100 of them.
BEFORE_SCORING = 100


class Counting:
    """A live source with two idle threads, whose counters the test advances."""

    def __init__(self, clock: Clock, node: str = "a") -> None:
        self.clock, self.node, self.wrong = clock, node, ""
        self.cpus: tuple[int, ...] = (0, 1)
        self.chance = np.random.default_rng(0)
        self.seconds = np.full((2, len(MODES)), 100.0)
        self.unread: list[NodeReading] = []  # of a warm-up

    def work(self) -> None:
        """One second."""
        spent = self.chance.integers(0, 2, (2, len(MODES))) / 100 * np.isin(MODES, ("user", "system"))
        spent[:, MODES.index("idle")] = 1 - spent.sum(1)
        self.seconds += spent

    def read(self) -> NodeReading:
        return NodeReading(self.node, self.clock.now_s, self.cpus, self.seconds[list(self.cpus)].copy())

    def readings(self) -> list[NodeReading]:
        if self.wrong:
            raise SourceError(self.wrong)
        unread, self.unread = self.unread, []
        return [*unread, self.read()]


def play(loop: Loop, clock: Clock, sources: list[Counting], seconds: int) -> Snapshot:
    for _ in range(seconds):
        clock.now_s += 1
        for source in sources:
            source.work()
        loop.turn()
    return loop.state.snapshot


def warm_up(loop: Loop, clock: Clock, sources: list[Counting], seconds: int, at_once: int = BEFORE_SCORING) -> Snapshot:
    """As `play`, but the first readings arrive in one turn. By default no turn is left out in which the loop scores."""
    for _ in range(at_once - 1):
        clock.now_s += 1
        for source in sources:
            source.work()
            source.unread.append(source.read())
    return play(loop, clock, sources, seconds - at_once + 1)


def live(clock: Clock, *sources: Counting) -> LiveFeed:
    return LiveFeed("test", [(source.node, source) for source in sources], clock)
