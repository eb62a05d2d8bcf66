"""How often a node gets new threads: traces in order -> an error for a node that invents some again and again.

Each new thread reorders the seconds of all threads of the cluster, which takes a third of a second for a hundred
thousand. A real node gets its threads at once, and a few later if some are plugged in.
"""

from __future__ import annotations

from clustertwin.core.errors import InputError

#: How often a node may get threads that it did not have before. The first time does not count.
MOST_TIMES = 16


class ThreadGrowth:
    """What is known of each node. The count of a node starts again `after_s` after its first new thread."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._last: dict[str, tuple[int, ...]] = {}  # node -> the threads of its last trace
        self._known: dict[str, set[int]] = {}  # node -> all threads so far
        self._times: dict[str, tuple[int, float]] = {}  # node -> how often, and when that began

    def check(self, node: str, cpus: tuple[int, ...], now_s: float) -> None:
        """Raise `InputError` if the node got new threads too often."""
        if self._last.get(node) == cpus:  # usually it is the same object
            return
        self._last[node] = cpus
        known = self._known.get(node)
        if known is None:
            self._known[node] = set(cpus)
            return
        if known.issuperset(cpus):
            return
        times, since_s = self._times.get(node, (0, now_s))
        if not 0.0 <= now_s - since_s < self._after_s:
            times, since_s = 0, now_s
        self._times[node] = times + 1, since_s
        if times >= MOST_TIMES:
            raise InputError(node, f"it got new threads {times + 1} times; the limit is {MOST_TIMES}")
        known.update(cpus)

    def forget(self, node: str) -> None:
        """Forget the threads of a node that is gone. The count stays, else a node in quarantine would begin anew."""
        self._last.pop(node, None)
        self._known.pop(node, None)
