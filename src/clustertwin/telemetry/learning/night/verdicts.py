"""What people said about a day: the port through which the nightly cycle hears verdicts and maintenance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, Protocol

Verdict = Literal["confirmed", "dismissed", "new-normal", "maintenance"]


@dataclass(frozen=True, slots=True)
class Vetted:
    """A person's word about some threads of a node for some time; no cpus: all of them."""

    node: str  # its name; of maintenance perhaps a pattern, like `n0*`
    cpus: tuple[int, ...]
    start_s: float
    end_s: float
    verdict: Verdict

    def holds(self, node: str) -> bool:
        # An event's node is a name, also where it reads like a pattern: [::1]:9400
        return node == self.node or (self.verdict == "maintenance" and fnmatchcase(node, self.node))


def has_changed(said: Sequence[Vetted]) -> bool:
    """Did somebody call a part of what they saw the new normal?"""
    return any(vetted.verdict == "new-normal" for vetted in said)


class Verdicts(Protocol):
    """Gives every verdict and maintenance window that touches the time from `start_s` to `end_s`."""

    def between(self, start_s: float, end_s: float) -> list[Vetted]: ...


@dataclass(frozen=True, slots=True)
class Told:
    """Verdicts already at hand: of a simulation, of a test, or none."""

    said: Sequence[Vetted] = ()

    def between(self, start_s: float, end_s: float) -> list[Vetted]:
        return [vetted for vetted in self.said if vetted.start_s < end_s and vetted.end_s > start_s]
