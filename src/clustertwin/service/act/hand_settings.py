"""Settings of the hand: where the policy and the log of the past are, and how often it looks at a job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HandSettings:
    policy: str = ""  # a file with rules; empty: evidence is taken, and nothing is proposed
    past: str = ""  # a job log, from which run times are predicted
    every_s: float = 60.0  # between two looks at one job
    listen: bool = True  # outcomes use what is known of other jobs and nodes
    suspects: bool = True  # jobs that may stand still are looked at before an event is open
