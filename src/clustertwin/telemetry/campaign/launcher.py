"""The port between a round and the system that runs its jobs: this host, or Slurm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from clustertwin.core.traces import JobSpan


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A job that has ended: its labels, and the reason if it failed."""

    name: str
    spans: tuple[JobSpan, ...]
    failure: str = ""


class Launcher(Protocol):
    """Runs the jobs of one round. `step` is called about once a second until `pending` is zero."""

    def step(self, now_s: float) -> list[FinishedJob]:
        """Start the jobs that can start now; return those that ended since the last step."""

    @property
    def running(self) -> tuple[str, ...]:
        """The names of the running jobs."""

    @property
    def pending(self) -> int:
        """The number of jobs that have not ended, running ones included."""

    def close(self) -> None:
        """End all running jobs and remove their processes."""
