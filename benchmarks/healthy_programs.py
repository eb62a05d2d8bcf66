"""Twelve healthy programs that the bundled detector has never seen: seed -> traces of a cluster that runs them.

None is drawn from a recorded signature. Each is a short function of time, so that a reader can check that it is healthy
and that nothing in it was fitted to the detector.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import CPU
from clustertwin.core.traces import JobSpan, Trace

Array = NDArray[np.float64]
#: threads, seconds, rng -> shares (thread, second, 3) of user, system and iowait
Program = Callable[[int, int, np.random.Generator], Array]
_TICKS = 100


def notebook(threads: int, seconds: int, rng: np.random.Generator) -> Array:
    """Idle by design, with bursts of half a minute on one thread every few minutes."""
    shares = np.full((threads, seconds, 3), (0.01, 0.005, 0.0))
    at = int(rng.uniform(0, 200))
    while at < seconds:
        length = int(rng.uniform(5, 60))
        shares[rng.integers(threads), at : at + length] = (0.95, 0.03, 0.0)
        at += length + int(rng.exponential(240)) + 20
    return shares


def half_busy(threads: int, seconds: int, rng: np.random.Generator) -> Array:
    """Every thread works half of the time."""
    user = np.clip(0.5 + _wander(threads, seconds, 0.03, 30, rng), 0, 0.95)
    return _shares(user, 0.03, 0.0)


def io_phases(threads: int, seconds: int, rng: np.random.Generator) -> Array:
    """Five minutes of computing, then a minute of reading, and so on from the start."""
    reading = (np.arange(seconds) + rng.integers(360)) % 360 < 60
    shares = _shares(np.full((threads, seconds), 0.97), 0.01, 0.0)
    shares[:, reading] = (0.25, 0.2, 0.35)
    return shares


def check_pointing(threads: int, seconds: int, rng: np.random.Generator) -> Array:
    """Ten minutes of computing, then a check-point of 40 s."""
    writing = (np.arange(seconds) + 30) % 640 < 40
    shares = _shares(np.full((threads, seconds), 0.98), 0.01, 0.0)
    shares[:, writing] = (0.05, 0.15, 0.2)
    return shares


def master_and_workers(threads: int, seconds: int, rng: np.random.Generator) -> Array:
    """The first thread hands out work and is mostly idle."""
    user = np.clip(0.96 + _wander(threads, seconds, 0.01, 20, rng), 0, 0.99)
    user[0] = np.clip(0.06 + _wander(1, seconds, 0.02, 20, rng)[0], 0, 1)
    return _shares(user, 0.01, 0.0)


def pipeline(threads: int, seconds: int, rng: np.random.Generator) -> Array:
    """Stages of different cost: the first is always busy, the last seldom."""
    level = np.linspace(0.95, 0.1, threads)[:, None]
    return _shares(np.clip(level + _wander(threads, seconds, 0.04, 40, rng), 0, 0.98), 0.02, 0.0)


def wandering_serial(threads: int, seconds: int, rng: np.random.Generator) -> Array:
    """One busy task that the kernel moves between the threads of the job."""
    shares = np.full((threads, seconds, 3), (0.003, 0.002, 0.0))
    at = 0
    while at < seconds:
        length = int(rng.exponential(40)) + 5
        shares[rng.integers(threads), at : at + length] = (0.97, 0.02, 0.0)
        at += length
    return shares


def parallel_and_serial(threads: int, seconds: int, rng: np.random.Generator) -> Array:
    """Two minutes on all threads, one minute on the first."""
    serial = (np.arange(seconds) + rng.integers(180)) % 180 < 60
    shares = _shares(np.full((threads, seconds), 0.97), 0.01, 0.0)
    shares[1:, serial] = (0.005, 0.005, 0.0)
    return shares


def kernel_heavy(threads: int, seconds: int, rng: np.random.Generator) -> Array:
    """Many small system calls."""
    system = np.clip(0.4 + _wander(threads, seconds, 0.05, 60, rng), 0.1, 0.7)
    return _shares(0.95 - system, system, 0.0)


def database(threads: int, seconds: int, rng: np.random.Generator) -> Array:
    """A load that rises and falls, with waits for a disk."""
    load = np.clip(0.4 + _wander(1, seconds, 0.2, 200, rng) + _wander(threads, seconds, 0.05, 20, rng), 0.02, 0.9)
    return _shares(0.6 * load, 0.2 * load, 0.2 * load)


def epochs(threads: int, seconds: int, rng: np.random.Generator) -> Array:
    """Training: data are read for 100 s, then epochs of 200 s with a validation of 30 s on a third of the threads."""
    time = np.arange(seconds)
    shares = _shares(np.full((threads, seconds), 0.9), 0.05, 0.0)
    validating = (time - 100) % 230 >= 200
    shares[threads // 3 + 1 :, validating] = (0.02, 0.01, 0.0)
    shares[:, time < 100] = (0.1, 0.1, 0.2)
    return shares


def adaptive(threads: int, seconds: int, rng: np.random.Generator) -> Array:
    """Idle time grows slowly while the mesh is refined, and falls when the work is balanced again."""
    idle = 0.02 + 0.12 * ((np.arange(seconds) / 900) % 1)
    return _shares(0.98 - idle + _wander(threads, seconds, 0.01, 10, rng), 0.015, 0.0)


PROGRAMS: dict[str, Program] = {
    "notebook": notebook,
    "half busy": half_busy,
    "I/O phases": io_phases,
    "check-pointing": check_pointing,
    "master and workers": master_and_workers,
    "pipeline": pipeline,
    "wandering serial": wandering_serial,
    "parallel and serial": parallel_and_serial,
    "kernel heavy": kernel_heavy,
    "database": database,
    "epochs": epochs,
    "adaptive": adaptive,
}


def simulate_unseen(hours: float, seed: int, threads: int = 16, each: int = 4) -> list[Trace]:
    """One node for each program; jobs of `each` threads and half an hour follow one another on it."""
    seconds = int(hours * 3600)
    return [
        _node(f"n{i:02d}", name, threads, each, seconds, np.random.default_rng((seed, i)))
        for i, name in enumerate(PROGRAMS)
    ]


def _node(node: str, program: str, threads: int, each: int, seconds: int, rng: np.random.Generator) -> Trace:
    values = np.zeros((threads, seconds, 4), np.float32)
    values[..., 3] = 1
    spans = []
    for first in range(0, threads, each):
        start = int(rng.uniform(5, 300))
        while start < seconds - 300:
            length = min(int(rng.uniform(900, 2700)), seconds - start)
            shares = PROGRAMS[program](each, length, rng)
            rest = np.maximum(1 - shares.sum(-1, keepdims=True), 0)
            ratios = np.concatenate([shares, rest], -1)
            ticks = rng.multinomial(_TICKS, ratios / ratios.sum(-1, keepdims=True))
            values[first : first + each, start : start + length] = ticks / _TICKS
            cpus, job = tuple(range(first, first + each)), f"{node}-{first}-{start}"
            spans.append(JobSpan(job, node, cpus, start, start + length, job_type=program))
            start += length + int(rng.uniform(20, 120))
    return Trace(node, tuple(range(threads)), 0, CPU, values, np.ones((threads, seconds), np.bool_), tuple(spans))


def _shares(user: Array, system: float | Array, iowait: float | Array) -> Array:
    return np.stack(np.broadcast_arrays(user, system, iowait), -1).astype(np.float64).copy()


def _wander(threads: int, seconds: int, deviation: float, memory_s: float, rng: np.random.Generator) -> Array:
    """(thread, second) an autoregressive process with this standard deviation and correlation time."""
    keep = np.exp(-1 / memory_s)
    noise = rng.normal(0, deviation * np.sqrt(1 - keep**2), (threads, seconds))
    out = np.empty((threads, seconds))
    level = rng.normal(0, deviation, threads)
    for t in range(seconds):
        level = keep * level + noise[:, t]
        out[:, t] = level
    return out
