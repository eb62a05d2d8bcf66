"""What can go wrong with a job, and how its threads' seconds look then: a visible table of anomalies.

Some follow from what a job does: a slow rank makes the others wait, a hung one leaves them waiting for ever.
The others are drawn from the signature that was fitted to their own recording.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.simulation.barrier import Barrier, draw_ranks, mix, wait_shares
from clustertwin.telemetry.simulation.process import draw
from clustertwin.telemetry.simulation.signature import Signature, Signatures

Ticks = NDArray[np.uint8]  # (thread, second, channel)
#: signatures, threads, seconds, the afflicted thread, rng -> what all threads of the job do while it lasts
Effect = Callable[[Signatures, int, int, int, np.random.Generator], Ticks]


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Which jobs it strikes, whom in them, and since when."""

    strikes: tuple[str, ...]  # job types; "mpi" stands for every mpi-N
    effect: Effect | None = None  # None: drawn from the recorded signature of (job type, anomaly)
    one_thread: bool = False  # else every thread of the job is afflicted
    peers_wait: bool = False  # the other threads look different too: they are labelled as its peers
    from_start: bool = False  # else it begins some time into the job
    grows: bool = False  # else it is as bad at first as at last


def straggler(factor: float) -> Effect:
    """One rank needs `factor` times as long for each step; every other rank waits for it."""

    def effect(signatures: Signatures, threads: int, seconds: int, which: int, rng: np.random.Generator) -> Ticks:
        slowness = np.ones(threads)
        slowness[which] = factor
        return draw_ranks(barrier_of(signatures), slowness, seconds, rng)

    return effect


def hung_rank(signatures: Signatures, threads: int, seconds: int, which: int, rng: np.random.Generator) -> Ticks:
    """One rank sleeps; every other rank waits in the collective for ever."""
    ticks = mix(barrier_of(signatures), np.ones((threads, seconds)), rng)
    ticks[which] = draw(kind_of(signatures, "idle"), 1, seconds, rng)[0]
    return ticks


def hung_job(signatures: Signatures, threads: int, seconds: int, _: int, rng: np.random.Generator) -> Ticks:
    """Every thread sleeps; the job holds them still."""
    return draw(kind_of(signatures, "idle"), threads, seconds, rng)


def misbound(signatures: Signatures, threads: int, seconds: int, _: int, rng: np.random.Generator) -> Ticks:
    """All ranks share the job's first thread; its others lie idle."""
    barrier = barrier_of(signatures)
    # Every rank gets an equal turn of the one CPU, polling or not: a step takes `threads` times as long.
    low_s, high_s = barrier.step_s
    waiting = wait_shares((low_s * threads, high_s * threads), np.ones(threads), seconds, rng)
    ticks = draw(kind_of(signatures, "idle"), threads, seconds, rng)
    ticks[0] = mix(barrier, waiting.mean(axis=0), rng)
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
    """`mpi-8` -> `mpi`: sizes of one program share what they do; any other type is its own family."""
    name, _, number = job_type.rpartition("-")
    return name if name == "mpi" and number.isdigit() else job_type


def draw_healthy(signatures: Signatures, job_type: str, threads: int, seconds: int, rng: np.random.Generator) -> Ticks:
    """What the threads of a job do while nothing is wrong."""
    if family(job_type) == "mpi":
        return draw_ranks(barrier_of(signatures), np.ones(threads), seconds, rng)
    return draw(kind_of(signatures, job_type), threads, seconds, rng)


def draw_afflicted(
    signatures: Signatures,
    job_type: str,
    anomaly: str,
    threads: int,
    seconds: int,
    which: int,
    rng: np.random.Generator,
) -> Ticks:
    """What they do while `anomaly` lasts; `which` is the afflicted thread where only one is."""
    row = ANOMALIES[anomaly]
    if row.effect is not None:
        return row.effect(signatures, threads, seconds, which, rng)
    if not row.one_thread:
        return draw(kind_of(signatures, job_type, anomaly), threads, seconds, rng)
    ticks = draw_healthy(signatures, job_type, threads, seconds, rng)
    ticks[which] = draw(kind_of(signatures, job_type, anomaly), 1, seconds, rng)[0]
    return ticks


def possible(signatures: Signatures) -> tuple[str, ...]:
    """The anomalies that these signatures can draw."""
    return tuple(
        name
        for name, anomaly in ANOMALIES.items()
        if (anomaly.effect is not None and (signatures.barrier is not None or "mpi" not in anomaly.strikes))
        or (anomaly.strikes[0], name) in signatures.kinds
    )


def kind_of(signatures: Signatures, job_type: str, anomaly: str = "") -> Signature:
    """The signature of this kind of thread, or an error that says what to record."""
    try:
        return signatures.kinds[job_type, anomaly]
    except KeyError:
        what = f"{job_type} with {anomaly}" if anomaly else job_type
        raise SettingsError(f"no recorded signature of {what}: record it and run `twin campaign fit`") from None


def barrier_of(signatures: Signatures) -> Barrier:
    """What MPI ranks do, or an error that says what to record."""
    if signatures.barrier is None:
        raise SettingsError("no recorded MPI job among the signatures: record mpi-N and run `twin campaign fit`")
    return signatures.barrier
