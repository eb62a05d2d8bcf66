"""What telemetry tells the workload half: how long running jobs still run, and which nodes are unfit.

The halves share these nouns and nothing else. An empty `ClusterHealth` changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class JobHealth:
    """Whether a job makes progress. A job that hangs runs to its time limit."""

    job: str
    hangs: bool
    sure: float  # 0 … 1
    left_s: float | None = None  # of a job that does not hang: how long it still runs, if that is known


#: The running jobs that something is known about, by their id.
KnownHealth = Mapping[str, JobHealth]


def chance_of_hanging(names: Sequence[str], known: KnownHealth) -> list[float]:
    """How sure it is that each of these running jobs hangs; 0 if nothing is known."""
    return [known[name].sure if name in known and known[name].hangs else 0.0 for name in names]


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """The port from telemetry to the simulator."""

    jobs: KnownHealth = field(default_factory=dict)
    unfit_nodes: frozenset[str] = frozenset()  # no job should start there
