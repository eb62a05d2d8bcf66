"""The port between a round and what runs its jobs: this host directly, or Slurm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from clustertwin.core.traces import JobSpan


@dataclass(frozen=True, slots=True)
class Finished:
    """A job that is over: its labels, and what went wrong, if anything did."""

    name: str
    spans: tuple[JobSpan, ...]
    failure: str = ""


class Launcher(Protocol):
    """Runs the jobs of one round. `step` is called about once a second until `pending` is empty."""

    def step(self, now_s: float) -> list[Finished]:
        """Start what can start now; what ended since the last step."""

    @property
    def running(self) -> tuple[str, ...]:
        """The names of the jobs that run now."""

    @property
    def pending(self) -> int:
        """How many jobs are not over yet, those that run included."""

    def close(self) -> None:
        """End what still runs, and leave nothing behind."""
