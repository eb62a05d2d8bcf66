"""When each node was heard: the traces of the turns -> the second up to which all nodes in step have data."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from clustertwin.core.traces import Trace


class HeardNodes:
    """The newest second of each node. What the newest of all was stays known when its node is forgotten."""

    def __init__(self, forget_s: int, in_step_s: int) -> None:
        self._forget_s, self._in_step_s = forget_s, in_step_s
        self.heard_s: dict[str, int] = {}  # node -> the end of its newest second
        self.known_s: dict[str, int] = {}  # node -> the end of its newest second with data
        self._last_s: int | None = None  # the newest of the nodes that were forgotten

    def __contains__(self, node: str) -> bool:
        return node in self.heard_s

    def __len__(self) -> int:
        return len(self.heard_s)

    @property
    def newest_s(self) -> int | None:
        """The end of the newest second of all nodes, also of those that were forgotten; None before the first."""
        return max(self.heard_s.values(), default=self._last_s)

    def add(self, trace: Trace) -> None:
        self.heard_s[trace.node] = trace.end_s
        with_data = np.flatnonzero(trace.valid.any(0))
        if len(with_data):
            self.known_s[trace.node] = trace.start_s + int(with_data[-1]) + 1

    def remove(self, node: str) -> None:
        self.known_s.pop(node, None)
        heard_s = self.heard_s.pop(node, None)
        if heard_s is not None:
            self._last_s = heard_s if self._last_s is None else max(heard_s, self._last_s)

    def clear(self) -> None:
        self._last_s = self.newest_s
        self.heard_s.clear()
        self.known_s.clear()

    def is_current(self, heard_s: float, now_s: float, for_s: float) -> bool:
        """Whether a second is at most `for_s` old. One from after now is from before the clock was set back."""
        return now_s - for_s <= heard_s <= now_s + self._in_step_s

    def forget_old(self, now_s: float) -> list[str]:
        """Forget the nodes without data for a long time, and return their names.

        After the clock was set back, a node that sends nothing any more would be the newest for as long as that.
        """
        current = self.is_current
        old = [node for node, heard_s in self.heard_s.items() if not current(heard_s, now_s, self._forget_s)]
        if old:
            self._last_s = self.newest_s
        for node in old:
            del self.heard_s[node]
            self.known_s.pop(node, None)
        return old

    def end_s(self, arrived: Iterable[str], shown_s: int | None) -> int | None:
        """The newest second for which all nodes in step have data; with many nodes, 95 % of them.

        `arrived` are the nodes that sent something in this turn, `shown_s` is the end of the seconds that are shown. A
        node that lags a little but sends every second is waited for. A node that sends nothing delays no other: its
        last seconds are unknown, which does no harm, and they are added if they arrive later.
        """
        if not self.heard_s:
            return None
        newest_s = max(self.heard_s.values())
        heard = [self.heard_s[node] for node in arrived if node in self.heard_s]
        in_step = sorted(heard_s for heard_s in heard if heard_s >= newest_s - self._in_step_s)
        end_s = in_step[len(in_step) // 20] if in_step else newest_s
        # A node that is back after a pause must not take the others back.
        return end_s if shown_s is None else min(max(end_s, shown_s), newest_s)
