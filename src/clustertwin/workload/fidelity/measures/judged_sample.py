"""Large logs -> the jobs that costly measures look at, and a sentence that says so.

Classifiers, nearest neighbours and copies look at `MOST_JUDGED_JOBS` jobs of each log, drawn at random. All other
measures, the simulated schedules among them, use every job. A log with fewer jobs is used whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MOST_JUDGED_JOBS = 60_000


@dataclass(frozen=True, slots=True)
class JudgedSample:
    """How many jobs the classifiers, the closest records and the copies looked at, of how many."""

    real_judged: int
    real_jobs: int
    synthetic_judged: int
    synthetic_jobs: int

    @classmethod
    def of(cls, real_jobs: int, synthetic_jobs: int) -> JudgedSample:
        return cls(min(real_jobs, MOST_JUDGED_JOBS), real_jobs, min(synthetic_jobs, MOST_JUDGED_JOBS), synthetic_jobs)

    def notes(self) -> list[str]:
        """What to say about it; nothing if every job was used.

        >>> JudgedSample.of(1000, 2000).notes()
        []
        >>> JudgedSample.of(1000, 1_000_000).notes()[0][:94]
        'Classifiers, closest records and copies: 1,000 of 1,000 real and 60,000 of 1,000,000 synthetic'
        """
        if self.real_judged == self.real_jobs and self.synthetic_judged == self.synthetic_jobs:
            return []
        return [
            f"Classifiers, closest records and copies: {self.real_judged:,} of {self.real_jobs:,} real and "
            f"{self.synthetic_judged:,} of {self.synthetic_jobs:,} synthetic jobs, drawn at random. All other figures "
            "except attacks use every job; attacks ask about 2,000 jobs and 200 users."
        ]


def judged_rows(table: Floats, most: int, seed: int) -> Floats:
    """At most `most` random rows of a table, in their order."""
    if len(table) <= most:
        return table
    return table[np.sort(np.random.default_rng(seed).choice(len(table), most, replace=False))]
