"""Nodes whose clock is not this machine's: a trace and the time -> whether it is from the future, and a problem.

With data from the future, all other nodes would seem stale, and the recording would delete their past. With data from
long ago, a node would disappear, although it is read every second.
"""

from __future__ import annotations

from clustertwin.core.traces import Trace

#: Current problems that are kept. A source that invents names must not fill the memory.
MOST_PROBLEMS = 2000
#: The newest second of a node is named if it is this much older than now. A feed that catches up after an outage begins
#: at most ten minutes ago.
BEHIND_S = 600.0


class NodeClocks:
    """Each such node is a problem until its clock is right, or until it is silent for `stale_s`."""

    def __init__(self, problems: dict[str, str], in_step_s: float, stale_s: float) -> None:
        self._problems, self._in_step_s, self._stale_s = problems, in_step_s, stale_s
        self._wrong_s: dict[str, float] = {}  # node -> when it was heard last

    def is_ahead(self, trace: Trace, now_s: float) -> bool:
        """Whether a trace ends after now, by more than nodes in step do."""
        ahead_s = trace.end_s - now_s
        if -BEHIND_S <= ahead_s <= self._in_step_s:
            self._forget(trace.node)
        elif len(self._problems) < MOST_PROBLEMS:
            self._problems[f"clock of {trace.node}"] = (
                f"{trace.node}: its clock is {ahead_s:.0f} s ahead of this machine's clock"
                if ahead_s > 0
                else f"{trace.node}: its newest data is {-ahead_s:.0f} s old: is its clock behind?"
            )
            self._wrong_s[trace.node] = now_s
        return ahead_s > self._in_step_s

    def forget_silent(self, now_s: float) -> None:
        """A node that sends nothing any more has no wrong clock."""
        for node in [node for node, at_s in self._wrong_s.items() if abs(now_s - at_s) > self._stale_s]:
            self._forget(node)

    def _forget(self, node: str) -> None:
        if self._wrong_s.pop(node, None) is not None:
            self._problems.pop(f"clock of {node}", None)
