"""A synthetic log of submissions, and a machine -> the log as a site writes it that records starts as submissions.

A generator that learns from a log of start times draws times at which users act, and nothing keeps its jobs within the
machine. A simulated scheduler does: each job then carries the time at which it starts there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import counted_unit
from clustertwin.workload.simulator import simulate


def submit_at_start(jobs: Jobs, procs: int) -> Jobs:
    """The jobs, each submitted when it starts on an EASY-scheduled machine of `procs` nodes (or cpus).

    A job that the machine cannot run keeps its time.

    >>> two = Jobs.build([0.0, 5.0], [10.0, 10.0], cpus=[4, 4])
    >>> submit_at_start(two, 4).submit_s.tolist()
    [0.0, 10.0]
    """
    log = replace(jobs, id=np.arange(len(jobs)))
    schedule = simulate(log, procs, "fcfs", "easy", unit=counted_unit(log))
    start_s = log.submit_s.copy()
    start_s[schedule.jobs.id] = schedule.end_s - schedule.jobs.run_s
    started = replace(jobs, submit_s=start_s).take(np.argsort(start_s, kind="stable"))
    return replace(started, id=jobs.id)
