"""What the hand is told: where the policy and the log of the past are, and how often it looks at a job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class HandSettings:
    policy: Path | None = None
    past: Path | None = None  # a job log, from which run times are predicted
    every_s: float = 60.0  # between two looks at one job
