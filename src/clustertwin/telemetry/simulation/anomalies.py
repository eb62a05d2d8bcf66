"""The table of anomalies: name -> which jobs it affects and how their seconds are drawn.

Anomalies of MPI jobs follow from the barrier model: a slow rank makes the others wait, and a hung rank makes them wait
forever. A hung job is drawn as idle threads. All others are drawn from the signature of their own recording.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.simulation.barrier import Barrier, draw_mixture, draw_ranks, wait_fractions
from clustertwin.telemetry.simulation.copula_process import draw_ticks
from clustertwin.telemetry.simulation.signature import IDLE, Signature, Signatures

Ticks = NDArray[np.uint8]  # (thread, second, channel)
#: signatures, threads, seconds, index of the anomalous thread, rng -> the seconds of all threads of the job
Effect = Callable[[Signatures, int, int, int, np.random.Generator], Ticks]


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Which jobs an anomaly affects, which of their threads, and when."""

    job_types: tuple[str, ...]  # "mpi" stands for every mpi-N
    effect: Effect | None = None  # None: drawn from the recorded signature of (job type, anomaly)
    one_thread: bool = False  # otherwise every thread of the job is anomalous
    peers_wait: bool = False  # the other threads change too, and are labelled as peers
    from_start: bool = False  # otherwise it begins some time into the job
    grows: bool = False  # its intensity increases through the job


def straggler(factor: float) -> Effect:
    """One rank needs `factor` times as long for each step, and every other rank waits for it."""

    def effect(signatures: Signatures, threads: int, seconds: int, thread: int, rng: np.random.Generator) -> Ticks:
        slowness = np.ones(threads)
        slowness[thread] = factor
        return draw_ranks(barrier_of(signatures), slowness, seconds, rng)

    return effect


def hung_rank(signatures: Signatures, threads: int, seconds: int, thread: int, rng: np.random.Generator) -> Ticks:
    """One rank sleeps, and every other rank waits in the collective."""
    ticks = draw_mixture(barrier_of(signatures), np.ones((threads, seconds)), rng)
    ticks[thread] = draw_ticks(signature_of(signatures, IDLE), 1, seconds, rng)[0]
    return ticks


def hung_job(signatures: Signatures, threads: int, seconds: int, _: int, rng: np.random.Generator) -> Ticks:
    """Every thread sleeps, and the job still holds them."""
    return draw_ticks(signature_of(signatures, IDLE), threads, seconds, rng)


def misbound(signatures: Signatures, threads: int, seconds: int, _: int, rng: np.random.Generator) -> Ticks:
    """All ranks share the job's first thread, and its other threads are idle."""
    barrier = barrier_of(signatures)
    # The ranks take equal turns on the one CPU, even while they poll: a step takes `threads` times as long.
    low_s, high_s = barrier.step_s
    waiting = wait_fractions((low_s * threads, high_s * threads), np.ones(threads), seconds, rng)
    ticks = draw_ticks(signature_of(signatures, IDLE), threads, seconds, rng)
    ticks[0] = draw_mixture(barrier, waiting.mean(axis=0), rng)
    return ticks


ANOMALIES: dict[str, Anomaly] = {
    "bad-io": Anomaly(("bad-io",), from_start=True),
    "throttled": Anomaly(("np",), one_thread=True),
    "swap-bursts": Anomaly(("np",)),
    "slow-io": Anomaly(("np",), from_start=True, grows=True),
    "noisy-neighbour": Anomaly(("np",), one_thread=True),
    "memory-leak": Anomaly(("np",), from_start=True, grows=True),
    "straggler-x2": Anomaly(("mpi",), straggler(2.0), one_thread=True, peers_wait=True),
    "straggler-x1.5": Anomaly(("mpi",), straggler(1.5), one_thread=True, peers_wait=True),
    "hung-rank": Anomaly(("mpi",), hung_rank, one_thread=True, peers_wait=True),
    "hung-job": Anomaly(("np", "good-io", "mpi"), hung_job),
    "misbound": Anomaly(("mpi",), misbound, from_start=True),
}


def family(job_type: str) -> str:
    """`mpi-8` -> `mpi`: all sizes of one program are a family; any other type is its own family."""
    name, _, number = job_type.rpartition("-")
    return name if name == "mpi" and number.isdigit() else job_type


def draw_healthy(signatures: Signatures, job_type: str, threads: int, seconds: int, rng: np.random.Generator) -> Ticks:
    """The seconds of a job's threads without an anomaly."""
    if family(job_type) == "mpi":
        return draw_ranks(barrier_of(signatures), np.ones(threads), seconds, rng)
    return draw_ticks(signature_of(signatures, job_type), threads, seconds, rng)


def draw_afflicted(
    signatures: Signatures,
    job_type: str,
    anomaly: str,
    threads: int,
    seconds: int,
    thread: int,
    rng: np.random.Generator,
) -> Ticks:
    """The seconds of a job's threads during `anomaly`; `thread` is the anomalous one if only one is."""
    row = ANOMALIES[anomaly]
    if row.effect is not None:
        return row.effect(signatures, threads, seconds, thread, rng)
    if not row.one_thread:
        return draw_ticks(signature_of(signatures, job_type, anomaly), threads, seconds, rng)
    ticks = draw_healthy(signatures, job_type, threads, seconds, rng)
    ticks[thread] = draw_ticks(signature_of(signatures, job_type, anomaly), 1, seconds, rng)[0]
    return ticks


def available_anomalies(signatures: Signatures) -> tuple[str, ...]:
    """The anomalies that can be drawn from these signatures."""
    return tuple(
        name
        for name, anomaly in ANOMALIES.items()
        if (anomaly.effect is not None and (signatures.barrier is not None or "mpi" not in anomaly.job_types))
        or (anomaly.job_types[0], name) in signatures.kinds
    )


def signature_of(signatures: Signatures, job_type: str, anomaly: str = "") -> Signature:
    """The signature of this kind of thread, or an error that says what to record."""
    try:
        return signatures.kinds[job_type, anomaly]
    except KeyError:
        kind = f"{job_type} with {anomaly}" if anomaly else job_type
        raise SettingsError(f"no signature of {kind}: record such a job and run `twin campaign fit`") from None


def barrier_of(signatures: Signatures) -> Barrier:
    """The model of MPI jobs, or an error that says what to record."""
    if signatures.barrier is None:
        raise SettingsError("the signatures contain no MPI job: record mpi-N and run `twin campaign fit`")
    return signatures.barrier
