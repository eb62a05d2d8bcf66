"""A whole cluster at work: settings, signatures, seed -> a `Trace` per node, with its jobs and what went wrong.

The same settings, signatures and seed give the same bytes.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import CPU
from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.campaign.simulation.anomalies import (
    ANOMALIES,
    draw_afflicted,
    draw_healthy,
    family,
    kind_of,
    possible,
)
from clustertwin.telemetry.campaign.simulation.demand import ClusterSettings, ask
from clustertwin.telemetry.campaign.simulation.placement import Placed, place
from clustertwin.telemetry.campaign.simulation.process import add_edges, draw
from clustertwin.telemetry.campaign.simulation.shares import TICKS
from clustertwin.telemetry.campaign.simulation.signature import IDLE, PEER, Signature, Signatures

_RATIOS = np.arange(TICKS + 1, dtype=np.float32) / TICKS
_ONSET = (0.1, 0.4)  # an anomaly begins after this part of its job


def simulate(settings: ClusterSettings, signatures: Signatures, seed: int) -> list[Trace]:
    """One trace per node; jobs and anomalies are in its spans."""
    if missing := set(settings.anomalies) - set(possible(signatures)):
        raise SettingsError(f"no recorded signature of {', '.join(sorted(missing))}: record it, `twin campaign fit`")
    seconds, rng = settings.seconds, np.random.default_rng((seed, 0))
    jobs = place(partial(ask, settings), settings.nodes, settings.threads, seconds, rng, settings.gap_s)
    idle = kind_of(signatures, IDLE)
    ticks = np.stack(
        [
            draw(idle, settings.threads, seconds, np.random.default_rng((seed, 1, node)))
            for node in range(settings.nodes)
        ]
    )  # (node, thread, second, channel)
    spans: list[list[JobSpan]] = [[] for _ in range(settings.nodes)]
    for number, job in enumerate(jobs):
        _run(job, number, settings, signatures, np.random.default_rng((seed, 2, number)), ticks, spans)
    names, cpus = node_names(settings.nodes), tuple(range(settings.threads))
    valid = np.ones((settings.threads, seconds), np.bool_)
    return [
        Trace(names[node], cpus, settings.start_s, CPU, _RATIOS[ticks[node]], valid, tuple(spans[node]))
        for node in range(settings.nodes)
    ]


def node_names(nodes: int) -> list[str]:
    """`n01`, `n02`, … as wide as the last needs."""
    return [f"n{i + 1:0{max(2, len(str(nodes)))}d}" for i in range(nodes)]


def _run(
    job: Placed,
    number: int,
    settings: ClusterSettings,
    signatures: Signatures,
    rng: np.random.Generator,
    ticks: NDArray[np.uint8],
    spans: list[list[JobSpan]],
) -> None:
    """Write one job's seconds into the cluster's ticks and its labels into the nodes' spans."""
    request, length = job.request, job.end - job.start
    anomaly, onset, which = request.anomaly, length, int(rng.integers(request.threads))
    if anomaly:
        onset = 0 if ANOMALIES[anomaly].from_start else int(request.length * rng.uniform(*_ONSET))
        if onset >= length:
            anomaly, onset = "", length  # the recording ends before it begins
    parts = []
    if onset:
        parts.append(draw_healthy(signatures, request.job_type, request.threads, onset, rng))
    if onset < length:
        parts.append(draw_afflicted(signatures, request.job_type, anomaly, request.threads, length - onset, which, rng))
    mine = np.concatenate(parts, axis=1)
    add_edges(mine, _edges_of(signatures, request.job_type, anomaly), rng)

    thread = 0
    for seat in job.seats:
        ticks[seat.node, list(seat.cpus), job.start : job.end] = mine[thread : thread + len(seat.cpus)]
        afflicted = seat.cpus[which - thread] if thread <= which < thread + len(seat.cpus) else None
        thread += len(seat.cpus)
        for cpus, what in _labels(seat.cpus, afflicted, anomaly):
            spans[seat.node].append(
                JobSpan(
                    job=str(number + 1),
                    node=node_names(settings.nodes)[seat.node],
                    cpus=cpus,
                    start_s=settings.start_s + job.start,
                    end_s=settings.start_s + job.end,
                    job_type=request.job_type,
                    anomaly=what,
                    onset_s=settings.start_s + job.start + onset if what and onset else None,
                )
            )


def _labels(cpus: tuple[int, ...], afflicted: int | None, anomaly: str) -> list[tuple[tuple[int, ...], str]]:
    """The threads of one node by what is wrong with them: the one afflicted, and its peers."""
    if not anomaly or not ANOMALIES[anomaly].one_thread:
        return [(cpus, anomaly)]
    peers = tuple(cpu for cpu in cpus if cpu != afflicted)
    labels = [(peers, anomaly + PEER if ANOMALIES[anomaly].peers_wait else "")] if peers else []
    return labels if afflicted is None else [((afflicted,), anomaly), *labels]


def _edges_of(signatures: Signatures, job_type: str, anomaly: str) -> Signature:
    """The signature whose start and end such a job has: of its own kind, or of the recorded size of its family."""
    if (job_type, anomaly) in signatures.kinds:
        return signatures.kinds[job_type, anomaly]
    same = [kind for kind in signatures.kinds.values() if family(kind.job_type) == family(job_type)]
    return next((kind for kind in same if not kind.anomaly), same[0])
