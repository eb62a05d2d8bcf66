"""What other work takes from a job: the busy time of a job's threads against the CPU time of its own cgroup.

The counters of a thread do not say whose work it did. The counters of a cgroup do: what its threads did beyond that was
done for others, such as a second job on the same threads, a daemon, or a forgotten process.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustertwin.telemetry.moments.moment import WINDOW_S, Moment

#: Below this busy time there is nothing to take, and a quotient means nothing.
LEAST_BUSY = 0.02
#: The part of the seconds that must be known, of threads and of the cgroup.
KNOWN = 0.5


@dataclass(frozen=True, slots=True)
class OtherWork:
    """One job on one node over the last seconds. All are means."""

    job: str
    node: str
    busy: float  # user and system time of its threads, as a part of their time
    own: float  # CPU time of the job's cgroup, as a part of the time of its threads
    taken: float  # the part of the busy time that other work used: 0 if all of it was the job's own


def other_work(moment: Moment) -> list[OtherWork]:
    """For each job and node of a moment with known counters, in the order of the rows of its job channels."""
    channels = moment.job_channels
    if channels is None or "job_cpu" not in channels.schema.names:
        return []
    own = channels.values[:, -WINDOW_S:, channels.schema.index("job_cpu")]  # (row, second)
    names = moment.schema.names
    columns = [names.index("user"), names.index("system")]
    found = []
    for row, (job, node) in enumerate(zip(channels.jobs, channels.node.tolist(), strict=True)):
        if job not in moment.jobs:
            continue  # it has ended
        threads = np.flatnonzero((moment.job == moment.jobs.index(job)) & (moment.node == node))
        seconds = slice(-min(WINDOW_S, int(moment.age_s[threads].min(initial=WINDOW_S))), None)
        valid = moment.valid[threads, -WINDOW_S:][:, seconds].all(axis=0) & ~np.isnan(own[row, seconds])
        if not len(threads) or valid.sum() < max(KNOWN * len(valid), 1):
            continue
        values = moment.values[threads, -WINDOW_S:][:, seconds][:, :, columns].sum(axis=2)  # (thread, second)
        busy, used = float(values[:, valid].mean()), float(own[row, seconds][valid].mean())
        taken = min(max(busy - used, 0.0) / busy, 1.0) if busy >= LEAST_BUSY else 0.0
        found.append(OtherWork(job, moment.nodes[node], busy, used, taken))
    return found
