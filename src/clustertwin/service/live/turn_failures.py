"""What fails inside a turn of the loop: a part and its exception -> a sentence for `problems`, a count, an exit.

A part that raises ends its own work in this second, and nothing else. A node whose data raises is in quarantine for a
minute. If the loop's own parts fail in every turn, the process ends with an error so that its supervisor restarts it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from clustertwin.core.errors import TwinError, describe

Part = Literal["source", "node", "model", "scoring", "store", "publishing"]

#: A node whose data could not be used is left out for this long.
QUARANTINE_S = 60.0
#: A source that invents names must not fill the memory.
MOST_IN_QUARANTINE = 1000
#: After this many scorings in a row that failed, the trace buffer is started again: its content may be the reason.
RESTART_AFTER = 3
#: After this many such starts without a scoring, the process ends.
MOST_RESTARTS = 3
#: After this many turns in a row that failed, about as many seconds, the process ends.
GIVE_UP_AFTER = 60
#: Failures of these parts are handled where they occur, and a restart would not help.
_ALONE = ("node", "store")


class LoopFailed(TwinError):
    """The loop has failed in many turns in a row."""

    exit_code = 70


class TurnFailures:
    """Counts failures. `problems` is the loop's table of current problems."""

    def __init__(self, problems: dict[str, str]) -> None:
        self.total: Counter[Part] = Counter()
        self.turns_in_a_row = 0
        self.restarts = 0  # of the trace buffer, since the last scoring
        self.reason = ""  # of the last failure
        self._problems = problems
        self._parts_in_a_row: Counter[Part] = Counter()
        self._failed = False
        self._quarantine: dict[str, float] = {}  # node -> until

    @contextmanager
    def isolated(self, part: Part, consequence: str) -> Iterator[None]:
        """Run a part of the turn. An exception is counted and named with its consequence, and the turn goes on."""
        try:
            yield
        except Exception as error:
            self.total[part] += 1
            self._parts_in_a_row[part] += 1
            self._failed |= part not in _ALONE
            self.reason = describe(error)
            self._problems[f"failed {part}"] = f"{consequence}: {self.reason}"
        else:
            if part != "scoring":  # most turns score nothing; see `scored`
                self._succeeded(part)

    def _succeeded(self, part: Part) -> None:
        self._parts_in_a_row[part] = 0
        self._problems.pop(f"failed {part}", None)

    def in_a_row(self, part: Part) -> int:
        return self._parts_in_a_row[part]

    def refuse_node(self, node: str, error: Exception, now_s: float) -> None:
        """Leave the node out for a while."""
        self.total["node"] += 1
        self._quarantine[node] = now_s + QUARANTINE_S
        reason = f"its data is left out for {QUARANTINE_S:.0f} s: {describe(error)}"
        self._problems[f"node {node}"] = f"{node[:80]}: {reason}"
        if len(self._quarantine) > MOST_IN_QUARANTINE:
            self._release(next(iter(self._quarantine)))

    def in_quarantine(self, node: str, now_s: float) -> bool:
        until_s = self._quarantine.get(node, now_s)
        return until_s - QUARANTINE_S <= now_s < until_s  # the first condition: the clock may have been set back

    def _release(self, node: str) -> None:
        del self._quarantine[node]
        self._problems.pop(f"node {node}", None)

    def restarted(self) -> None:
        """The trace buffer was started again, because every scoring failed."""
        self.restarts += 1
        self._parts_in_a_row["scoring"] = 0
        self._problems["restart"] = f"no second could be scored, so the seconds are collected again: {self.reason}"

    def scored(self) -> None:
        """A scoring succeeded."""
        self._succeeded("scoring")
        self.restarts = 0
        self._problems.pop("restart", None)

    def end_turn(self, now_s: float) -> None:
        for node in [node for node in self._quarantine if not self.in_quarantine(node, now_s)]:
            self._release(node)
        self.turns_in_a_row = self.turns_in_a_row + 1 if self._failed else 0
        self._failed = False

    def check(self) -> None:
        """Raise `LoopFailed` if going on makes no sense."""
        if self.restarts >= MOST_RESTARTS:
            raise LoopFailed(f"no second could be scored after {self.restarts} fresh starts: {self.reason}")
        if self.turns_in_a_row >= GIVE_UP_AFTER:
            raise LoopFailed(f"the loop failed {self.turns_in_a_row} times in a row, the last time with: {self.reason}")
