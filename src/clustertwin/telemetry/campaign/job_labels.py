"""Say what a job was: a planned job, its CPUs on its nodes and its times -> the spans that label a recording."""

from __future__ import annotations

from collections.abc import Mapping

from clustertwin.core.traces import JobSpan
from clustertwin.telemetry.campaign.catalogue import find_type, label_of
from clustertwin.telemetry.campaign.plan import Planned
from clustertwin.telemetry.simulation.signature import PEER

#: The job type of a job that did not work until its end: its seconds are neither its type's nor idle.
FAILED = "failed"


def spans_of(
    job: Planned, job_id: str, cpus: Mapping[str, tuple[int, ...]], start_s: float, end_s: float, failed: bool = False
) -> list[JobSpan]:
    """One span per node, or two where an anomaly strikes one CPU: `cpus` is node -> the job's CPUs there, in order."""
    row = find_type(job.type)
    job_type = FAILED if failed else label_of(job.type, job.threads)
    onset_s = None if job.onset_s is None else start_s + job.onset_s
    last_node = list(cpus)[-1]
    spans = []
    for node, mine in cpus.items():
        struck = mine[-1:] if node == last_node else ()
        parts = [(mine, row.anomaly)]
        if row.one_thread:
            parts = [
                (mine[: len(mine) - len(struck)], row.anomaly + PEER if row.peers_wait else ""),
                (struck, row.anomaly),
            ]
        for some, anomaly in parts:
            if some:
                spans.append(
                    JobSpan(job_id, node, some, start_s, end_s, job_type, "", anomaly, onset_s if anomaly else None)
                )
    return spans
