"""A whole cluster at work: settings, signatures, seed -> a `Trace` per node, with its jobs and what went wrong.

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
    draw_afflicted,
    draw_healthy,
    family,
    kind_of,
    possible,
)
from clustertwin.telemetry.simulation.demand import ClusterSettings, ask
from clustertwin.telemetry.simulation.placement import Placed, Seat, place
from clustertwin.telemetry.simulation.process import add_edges, draw
from clustertwin.telemetry.simulation.shares import TICKS
from clustertwin.telemetry.simulation.signature import IDLE, PEER, Signature, Signatures

_RATIOS: NDArray[np.float32] = (np.arange(TICKS + 1) / TICKS).astype(np.float32)
_ONSET = (0.1, 0.4)  # an anomaly begins after this part of its job


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a job: which anomaly, after how many seconds, on which of its threads."""

    anomaly: str
    onset: int
    thread: int


def simulate(settings: ClusterSettings, signatures: Signatures, seed: int) -> list[Trace]:
    """One trace per node; jobs and anomalies are in its spans."""
    if missing := set(settings.anomalies) - set(possible(signatures)):
        raise SettingsError(f"no recorded signature of {', '.join(sorted(missing))}: record it, `twin campaign fit`")
    nodes, threads, seconds = settings.nodes, settings.threads, settings.seconds
    jobs = place(partial(ask, settings), nodes, threads, seconds, np.random.default_rng((seed, 0)), settings.gap_s)
    idle = kind_of(signatures, IDLE)
    # (thread, second, channel) of each node; every node and every job has a random generator of its own
    ticks = [draw(idle, threads, seconds, np.random.default_rng((seed, 1, node))) for node in range(nodes)]
    names = node_names(nodes)
    spans: list[list[JobSpan]] = [[] for _ in names]
    for number, job in enumerate(jobs):
        rng = np.random.default_rng((seed, 2, number))
        fate = _fate(job, rng)
        mine = _perform(job, fate, signatures, rng)
        for seat, first in _seats(job):
            ticks[seat.node][list(seat.cpus), job.start : job.end] = mine[first : first + len(seat.cpus)]
            for cpus, anomaly in _struck(seat.cpus, fate.thread - first, fate.anomaly):
                spans[seat.node].append(
                    JobSpan(
                        job=str(number + 1),
                        node=names[seat.node],
                        cpus=cpus,
                        start_s=settings.start_s + job.start,
                        end_s=settings.start_s + job.end,
                        job_type=job.request.job_type,
                        anomaly=anomaly,
                        onset_s=settings.start_s + job.start + fate.onset if anomaly and fate.onset else None,
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
    """`n01`, `n02`, … as wide as the last needs."""
    return [f"n{i + 1:0{max(2, len(str(nodes)))}d}" for i in range(nodes)]


def _fate(job: Placed, rng: np.random.Generator) -> Fate:
    """Draw it; an anomaly that would begin after the recording's end does not happen."""
    thread, length = int(rng.integers(job.request.threads)), job.end - job.start
    anomaly = job.request.anomaly
    if not anomaly:
        return Fate("", length, thread)
    onset = 0 if ANOMALIES[anomaly].from_start else int(job.request.length * rng.uniform(*_ONSET))
    return Fate(anomaly, onset, thread) if onset < length else Fate("", length, thread)


def _perform(job: Placed, fate: Fate, signatures: Signatures, rng: np.random.Generator) -> Ticks:
    """What a job's threads do from its first second to its last: (thread, second, channel)."""
    kind, threads, length = job.request.job_type, job.request.threads, job.end - job.start
    parts = []
    if fate.onset:
        parts.append(draw_healthy(signatures, kind, threads, fate.onset, rng))
    if fate.anomaly:
        parts.append(draw_afflicted(signatures, kind, fate.anomaly, threads, length - fate.onset, fate.thread, rng))
    ticks = np.concatenate(parts, axis=1)
    add_edges(ticks, _edges_of(signatures, kind, fate.anomaly), rng)
    return ticks


def _edges_of(signatures: Signatures, job_type: str, anomaly: str) -> Signature:
    """The signature whose start and end such a job has: of its own kind, or of the recorded size of its family."""
    if (job_type, anomaly) in signatures.kinds and not (anomaly and ANOMALIES[anomaly].one_thread):
        return signatures.kinds[job_type, anomaly]
    same = [kind for kind in signatures.kinds.values() if family(kind.job_type) == family(job_type)]
    return next((kind for kind in same if not kind.anomaly), same[0])


def _seats(job: Placed) -> Iterator[tuple[Seat, int]]:
    """Each node's threads with the number of the first among all threads of the job."""
    first = 0
    for seat in job.seats:
        yield seat, first
        first += len(seat.cpus)


def _struck(cpus: tuple[int, ...], afflicted: int, anomaly: str) -> list[tuple[tuple[int, ...], str]]:
    """The threads of one node by what is wrong with them; `afflicted` counts from the node's first."""
    if not anomaly or not ANOMALIES[anomaly].one_thread:
        return [(cpus, anomaly)]
    here = cpus[afflicted : afflicted + 1] if afflicted >= 0 else ()
    peers = tuple(cpu for cpu in cpus if cpu not in here)
    labels = [(here, anomaly), (peers, anomaly + PEER if ANOMALIES[anomaly].peers_wait else "")]
    return [(some, what) for some, what in labels if some]
