"""Jobs that run at once if each starts when it is submitted -> whether the submit times of a log can be what they say.

Users do not know when the machine is free, so the jobs that they submit exceed it at times, and some wait. In some logs
they never do, and no job has a wait, although the same jobs at random times would exceed the machine: these logs record
starts as submissions. No scheduler can be studied with such a log.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from clustertwin.workload.fidelity.measures.compared_log import ComparedLog
from clustertwin.workload.fidelity.measures.offered_load import Capacity, offered_load
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import job_sizes

BUSY_LOAD = 0.1  # below it, jobs may fit by chance or because their users wait for them
EXCUSED_SHARE = 0.001  # of the jobs may have a wait
RANDOM_LOGS = 9  # of the same jobs at random times; all of them must exceed the machine


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
    """Whether no job waited, all fit the machine when they are submitted, and at random times they would not."""
    waited = float(np.mean(jobs.wait_s > 0))
    if waited > EXCUSED_SHARE or offered_load(jobs, on) < BUSY_LOAD or peak(jobs, on) > on.procs:
        return False
    rng = np.random.default_rng(0)
    first_s, last_s = float(jobs.submit_s[0]), float(jobs.submit_s[-1])
    times_s = (np.sort(rng.uniform(first_s, last_s, len(jobs))) for _ in range(RANDOM_LOGS))
    return all(peak(replace(jobs, submit_s=submit_s), on) > on.procs for submit_s in times_s)


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
