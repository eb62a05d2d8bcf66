"""Label a job: a planned job, its CPUs on each node, its start and end -> the spans of a recording."""

from __future__ import annotations

from collections.abc import Mapping

from clustertwin.core.traces import JobSpan
from clustertwin.telemetry.campaign.catalogue import find_type, label_of
from clustertwin.telemetry.campaign.plan import PlannedJob
from clustertwin.telemetry.simulation.signature import PEER

#: The job type of a job that ended early. Its seconds are neither typical of its type nor idle.
FAILED = "failed"


def spans_of(
    job: PlannedJob,
    job_id: str,
    cpus: Mapping[str, tuple[int, ...]],
    start_s: float,
    end_s: float,
    failed: bool = False,
) -> list[JobSpan]:
    """One span per node, or two if the anomaly affects one CPU; `cpus` is node -> the job's CPUs, in order."""
    row = find_type(job.type)
    job_type = FAILED if failed else label_of(job.type, job.threads)
    onset_s = None if job.onset_s is None else start_s + job.onset_s
    last_node = list(cpus)[-1]
    spans = []
    for node, node_cpus in cpus.items():
        affected = node_cpus[-1:] if node == last_node else ()
        labels = [(node_cpus, row.anomaly)]
        if row.one_thread:
            labels = [
                (node_cpus[: len(node_cpus) - len(affected)], row.anomaly + PEER if row.peers_wait else ""),
                (affected, row.anomaly),
            ]
        for labelled, anomaly in labels:
            if labelled:
                spans.append(
                    JobSpan(job_id, node, labelled, start_s, end_s, job_type, "", anomaly, onset_s if anomaly else None)
                )
    return spans
