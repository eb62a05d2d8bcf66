"""What telemetry tells the workload half about a running job. The halves share this noun and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobHealth:
    """Whether a job makes progress. A job that hangs runs to its time limit."""

    job: str
    hangs: bool
    sure: float  # 0 … 1


#: The port from telemetry to the simulator: the jobs that something is known about.
KnownHealth = Mapping[str, JobHealth]
