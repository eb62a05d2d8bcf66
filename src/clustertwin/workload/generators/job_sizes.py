"""The size of jobs and of the machine, in nodes if the log counts them, else in cpus."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustertwin.workload.jobs import Jobs


def sizes(jobs: Jobs) -> NDArray[np.int64]:
    """(job,) the nodes of each job, or its cpus if the log does not count nodes."""
    return jobs.nodes if np.any(jobs.nodes > 0) else jobs.cpus


def machine_size(jobs: Jobs) -> int:
    """The size of the machine: what the log states, but at least its largest job."""
    stated = jobs.machine.nodes if np.any(jobs.nodes > 0) else jobs.machine.cpus
    return max(stated, int(sizes(jobs).max()))
