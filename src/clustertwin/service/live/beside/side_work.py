"""Work beside the loop: a turn -> a thread that repeats it until the service stops, and its failures as problems."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from clustertwin.core.errors import describe

Fence = Callable[[], AbstractContextManager[None]]


def fence_of(problems: MutableMapping[str, str], work: str) -> Fence:
    """A fence around each turn of some work, such as notifications.

    Whatever the turn raises is a problem until a later turn succeeds. If such a thread ended,
    nobody would notice: no message would arrive, and no page would show it.
    """

    @contextmanager
    def fence() -> Iterator[None]:
        try:
            yield
            problems.pop(work, None)
        except Exception as error:
            problems[work] = f"{work}: {describe(error)}; the next attempt follows"

    return fence


def repeat(
    turn: Callable[[], object],
    stop: threading.Event,
    every_s: float,
    fence: Fence = nullcontext,
    *,
    at_once: bool = False,
) -> None:
    """Take turns until `stop` is set, with this time between them. The first turn is at once, or after that time."""
    rest_s = 0.0 if at_once else every_s
    while not stop.wait(rest_s):
        with fence():
            turn()
        rest_s = every_s


class SideThreads:
    """The threads beside the loop, which end together."""

    def __init__(self, stop: threading.Event) -> None:
        self.stop = stop
        self._threads: list[tuple[threading.Thread, float]] = []

    def start(self, name: str, work: Callable[[], None], ends_within_s: float = 1.0) -> None:
        """Run `work` in a thread. It must return soon after `stop` is set; `join` waits for it this long."""
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        self._threads.append((thread, ends_within_s))

    def join(self) -> None:
        """Wait for the threads. One that waits for a server which does not answer is left to the end of the process."""
        begun_s = time.monotonic()
        for thread, within_s in self._threads:
            thread.join(max(begun_s + within_s - time.monotonic(), 0.0))
