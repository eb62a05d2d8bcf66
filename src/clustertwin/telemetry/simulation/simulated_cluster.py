"""Simulate a whole cluster: settings, signatures, seed -> a `Trace` per node, labelled with jobs and anomalies.

The same settings, signatures and seed give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import CPU
from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.simulation.anomalies import (
    ANOMALIES,
    Ticks,
    available_anomalies,
    draw_afflicted,
    draw_healthy,
    family,
    signature_of,
)
from clustertwin.telemetry.simulation.copula_process import draw_ticks, overwrite_edges
from clustertwin.telemetry.simulation.demand import ClusterSettings, draw_request
from clustertwin.telemetry.simulation.placement import NodeAllocation, PlacedJob, place_jobs
from clustertwin.telemetry.simulation.signature import IDLE, PEER, Signature, Signatures
from clustertwin.telemetry.simulation.stick_breaking import TICKS

_RATIOS: NDArray[np.float32] = (np.arange(TICKS + 1) / TICKS).astype(np.float32)
_ONSET = (0.1, 0.4)  # an anomaly begins after this fraction of its job


@dataclass(frozen=True, slots=True)
class Injection:
    """The anomaly of a job, empty for none, its onset in seconds after the start, and the thread that it affects."""

    anomaly: str
    onset: int
    thread: int


def simulate(settings: ClusterSettings, signatures: Signatures, seed: int) -> list[Trace]:
    """One trace per node; its spans label jobs and anomalies."""
    if missing := set(settings.anomalies) - set(available_anomalies(signatures)):
        anomalies = ", ".join(sorted(missing))
        raise SettingsError(f"no signature of {anomalies}: record such jobs and run `twin campaign fit`")
    nodes, threads, seconds = settings.nodes, settings.threads, settings.seconds
    requests = partial(draw_request, settings)
    jobs = place_jobs(requests, nodes, threads, seconds, np.random.default_rng((seed, 0)), settings.gap_s)
    idle = signature_of(signatures, IDLE)
    # (thread, second, channel) of each node; every node and every job has its own random generator
    ticks = [draw_ticks(idle, threads, seconds, np.random.default_rng((seed, 1, node))) for node in range(nodes)]
    names = node_names(nodes)
    spans: list[list[JobSpan]] = [[] for _ in names]
    for number, job in enumerate(jobs):
        rng = np.random.default_rng((seed, 2, number))
        injection = _draw_injection(job, rng)
        job_ticks = _draw_job(job, injection, signatures, rng)
        for allocation, first in _with_first_thread(job):
            cpus = allocation.cpus
            ticks[allocation.node][list(cpus), job.start : job.end] = job_ticks[first : first + len(cpus)]
            for labelled, anomaly in _label_threads(cpus, injection.thread - first, injection.anomaly):
                spans[allocation.node].append(
                    JobSpan(
                        job=str(number + 1),
                        node=names[allocation.node],
                        cpus=labelled,
                        start_s=settings.start_s + job.start,
                        end_s=settings.start_s + job.end,
                        job_type=job.request.job_type,
                        anomaly=anomaly,
                        onset_s=settings.start_s + job.start + injection.onset if anomaly and injection.onset else None,
                    )
                )
    return [
        Trace(
            node=names[node],
            cpus=tuple(range(threads)),
            start_s=settings.start_s,
            schema=CPU,
            values=_RATIOS[ticks[node]],
            valid=np.ones((threads, seconds), np.bool_),
            spans=tuple(spans[node]),
        )
        for node in range(nodes)
    ]


def node_names(nodes: int) -> list[str]:
    """`n01`, `n02`, …, all with the width of the last."""
    return [f"n{i + 1:0{max(2, len(str(nodes)))}d}" for i in range(nodes)]


def _draw_injection(job: PlacedJob, rng: np.random.Generator) -> Injection:
    """Draw onset and thread. An anomaly that would begin after the end of the recording is left out."""
    thread, length = int(rng.integers(job.request.threads)), job.end - job.start
    anomaly = job.request.anomaly
    if not anomaly:
        return Injection("", length, thread)
    onset = 0 if ANOMALIES[anomaly].from_start else int(job.request.length * rng.uniform(*_ONSET))
    return Injection(anomaly, onset, thread) if onset < length else Injection("", length, thread)


def _draw_job(job: PlacedJob, injection: Injection, signatures: Signatures, rng: np.random.Generator) -> Ticks:
    """All seconds of a job's threads: (thread, second, channel)."""
    job_type, threads, length = job.request.job_type, job.request.threads, job.end - job.start
    anomaly, onset = injection.anomaly, injection.onset
    parts = []
    if onset:
        parts.append(draw_healthy(signatures, job_type, threads, onset, rng))
    if anomaly:
        parts.append(draw_afflicted(signatures, job_type, anomaly, threads, length - onset, injection.thread, rng))
    ticks = np.concatenate(parts, axis=1)
    overwrite_edges(ticks, _edge_signature(signatures, job_type, anomaly), rng)
    return ticks


def _edge_signature(signatures: Signatures, job_type: str, anomaly: str) -> Signature:
    """The signature that gives such a job its start and end: that of its kind, or of a recorded size of its family."""
    if (job_type, anomaly) in signatures.kinds and not (anomaly and ANOMALIES[anomaly].one_thread):
        return signatures.kinds[job_type, anomaly]
    same = [kind for kind in signatures.kinds.values() if family(kind.job_type) == family(job_type)]
    return next((kind for kind in same if not kind.anomaly), same[0])


def _with_first_thread(job: PlacedJob) -> Iterator[tuple[NodeAllocation, int]]:
    """Each allocation with the index of its first thread among all threads of the job."""
    first = 0
    for allocation in job.allocations:
        yield allocation, first
        first += len(allocation.cpus)


def _label_threads(cpus: tuple[int, ...], anomalous: int, anomaly: str) -> list[tuple[tuple[int, ...], str]]:
    """The threads of one node by label. `anomalous` is an index into them and may lie on another node."""
    if not anomaly or not ANOMALIES[anomaly].one_thread:
        return [(cpus, anomaly)]
    affected = cpus[anomalous : anomalous + 1] if anomalous >= 0 else ()
    peers = tuple(cpu for cpu in cpus if cpu not in affected)
    labels = [(affected, anomaly), (peers, anomaly + PEER if ANOMALIES[anomaly].peers_wait else "")]
    return [(threads, label) for threads, label in labels if threads]
