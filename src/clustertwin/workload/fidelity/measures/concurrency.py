"""Jobs that run at once if each starts when it is submitted -> whether the submit times of a log can be what they say.

On a busy machine some submitted jobs have to wait, so their sum exceeds the machine at times. In some logs it never
does, although the machine is busy and no job has a wait: they record starts as submissions. No scheduler can be studied
with such a log. A synthetic log made from it asks for more than the machine has, and its waits are made up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustertwin.workload.fidelity.measures.compared_log import ComparedLog
from clustertwin.workload.fidelity.measures.offered_load import Capacity, offered_load
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import job_sizes

BUSY_LOAD = 0.2  # below it, a log without any wait is possible
EXCUSED_SHARE = 0.001  # of the jobs may have a wait


@dataclass(frozen=True, slots=True)
class ConcurrencyComparison:
    """The largest sum of sizes of jobs that run at once, if each job starts when it is submitted."""

    real_peak: int
    synthetic_peak: int
    real_submits_are_starts: bool


def peak(jobs: Jobs, on: Capacity) -> int:
    """The largest number of nodes or cpus in use, if no job waits.

    >>> peak(Jobs.build([0.0, 5.0, 10.0], [10.0, 2.0, 1.0], cpus=[4, 2, 3]), Capacity(8, "cpus"))
    6
    """
    size = np.maximum(job_sizes(jobs, on.unit), 0)
    end_s = jobs.submit_s + np.maximum(jobs.run_s, 0)
    at_s = np.concatenate([end_s, jobs.submit_s])  # a job ends before another one starts in the same second
    change = np.concatenate([-size, size])
    return int(np.cumsum(change[np.argsort(at_s, kind="stable")]).max(initial=0))


def submits_are_starts(jobs: Jobs, on: Capacity) -> bool:
    """Whether a busy log records no wait, and all of its jobs fit the machine at the moment they are submitted."""
    waited = float(np.mean(jobs.wait_s > 0))
    return waited <= EXCUSED_SHARE and offered_load(jobs, on) >= BUSY_LOAD and peak(jobs, on) <= on.procs


def compare_concurrency(real: ComparedLog, synthetic: ComparedLog, on: Capacity) -> ConcurrencyComparison:
    return ConcurrencyComparison(
        peak(real.jobs, on), peak(synthetic.jobs, on), submits_are_starts(real.jobs, on)
    )  # fmt: skip


def concurrency_notes(found: ConcurrencyComparison, on: Capacity) -> list[str]:
    """What to say about a comparison; nothing if the submit times are plausible."""
    if not found.real_submits_are_starts:
        return []
    notes = [starts_note(found.real_peak, on)]
    if found.synthetic_peak > on.procs:
        notes.append(
            f"The synthetic log submits up to {found.synthetic_peak:,} {on.unit} at once, which the real log never "
            "does. Its simulated waits cannot be compared."
        )
    return notes


def starts_note(real_peak: int, on: Capacity) -> str:
    return (
        f"The submit times of the real log are start times: no job waited, and at most {real_peak:,} of {on.procs:,} "
        f"{on.unit} are in use if every job starts when it is submitted."
    )
