"""Tell a wrong clock from a gap: the ends of traces as they arrive -> why a trace must not be recorded, if so.

Chunks expire by the newest second of a recording, and a recording takes no second twice. So a clock that is wrong for a
while must not write to it. One node can be wrong alone, and is then left out alone; most of them together are this
machine or the site, and are believed after a while.
"""

from __future__ import annotations

#: A trace that ends this much after the time that is expected, or before it, has a wrong clock. A smaller step back is
#: waited for.
AHEAD_S, BEHIND_S = 3600.0, 86_400.0
#: A jump that lasts for this long is believed.
BELIEVED_S = 600.0
#: The expected time follows nodes that lag this often.
_FOLLOW_S = 1.0


class ClockGuard:
    """Compares the ends of traces with a clock that nobody sets.

    The offset of a node is the end of its last trace minus that clock. One offset is expected: the largest that is near
    the last one, so that a node that lags does not take it back. If the offset of most nodes is elsewhere for
    `BELIEVED_S`, that one is expected from then on.
    """

    def __init__(self) -> None:
        self._offsets_s: dict[str, float] = {}  # of the nodes that are heard
        self._expected_s: float | None = None
        self._followed_s = 0.0
        self._moved_s: float | None = None  # since when most nodes are elsewhere

    @property
    def has_begun(self) -> bool:
        return self._expected_s is not None

    def begin(self, newest_s: float, now_s: float) -> None:
        """Expect the traces after this second. How much time has passed since it is not known."""
        self._expected_s = newest_s - now_s

    def forget(self, node: str) -> None:
        """A node is silent."""
        self._offsets_s.pop(node, None)

    def reason(self, node: str, end_s: float, now_s: float) -> str:
        """Why a trace that ends at this second is not recorded; empty if it is."""
        assert self._expected_s is not None
        offset_s = self._offsets_s[node] = end_s - now_s
        if self._is_near(offset_s):
            self._expected_s = max(self._expected_s, offset_s)
            if not self._followed_s <= now_s < self._followed_s + _FOLLOW_S:
                self._followed_s = now_s
                self._expected_s = max(filter(self._is_near, self._offsets_s.values()))
                self._judge(now_s)
            return ""
        self._judge(now_s)
        jump_s = offset_s - self._expected_s
        if self._is_near(offset_s):  # it is believed now
            return ""
        if self._moved_s is None:
            where = f"{abs(jump_s) / 3600:.0f} h {'ahead of' if jump_s > 0 else 'behind'}"
            return f"the clock of {node[:80]} is {where} the others; it is not recorded"
        return f"the clock jumped by {jump_s / 3600:+.0f} h; nothing is recorded until it stays so for 10 min"

    def _judge(self, now_s: float) -> None:
        """Believe most of the nodes, if they have been elsewhere for a while."""
        middle_s = sorted(self._offsets_s.values())[len(self._offsets_s) // 2]
        if self._is_near(middle_s):
            self._moved_s = None
            return
        self._moved_s = now_s if self._moved_s is None else self._moved_s
        if now_s - self._moved_s >= BELIEVED_S:
            self._expected_s, self._moved_s = middle_s, None

    def _is_near(self, offset_s: float) -> bool:
        assert self._expected_s is not None
        return -BEHIND_S <= offset_s - self._expected_s <= AHEAD_S
