"""Synthetic threads: rng -> traces of healthy threads with any behaviour, without known jobs.

The bundled detector must not alarm on a site's programs because they differ from ours. Where no job is known, it learns
from the threads made here. They mix user and system time in any proportion, are busy from almost never to always, and
are steady or alternate between work and rest at any pace. They never wait for I/O for long.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import CPU
from clustertwin.core.compiled import compiled
from clustertwin.core.traces import Trace

TICKS = 100  # of the kernel, in a second
BUSY = (0.0003, 1.0)  # share of the time at work; this and the next two are drawn evenly on a logarithmic scale
TURN_S = (0.2, 1200.0)  # mean length of a period of work or rest
FLUSH = (1e-4, 0.03)  # share of the time in which pages are written to a disk
_STEPS = 5  # in a second, because a period can be shorter than a second


def synthetic_node(threads: int, seconds: int, rng: np.random.Generator) -> Trace:
    """A node with independent threads."""
    values = np.stack([_thread(seconds, rng) for _ in range(threads)])
    return Trace("invented", tuple(range(threads)), 0, CPU, values, np.ones((threads, seconds), np.bool_))


def _thread(seconds: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """(second, channel)"""
    busy, turn_s = _log_uniform(BUSY, rng), _log_uniform(TURN_S, rng)
    system = rng.beta(0.6, 3)
    peak = rng.uniform(busy, 1)  # the load in a period of work
    load = peak * _active_share(busy / peak, turn_s, seconds, rng)  # (second,)
    load = np.maximum(load, _log_uniform((1e-4, 0.02), rng))  # a resting thread still has some load
    load = np.clip(load * np.exp(rng.normal(0, rng.uniform(0.01, 0.8), seconds)), 0, 1)[:, None]
    # Occasional short waits for pages to be written, independent of the load.
    flushed = _active_share(_log_uniform(FLUSH, rng), rng.uniform(0.2, 3), seconds, rng)
    iowait = (flushed * rng.beta(0.5, 1, seconds))[:, None] * (1 - load)
    ratios = np.concatenate([load * (1 - system), load * system, iowait, 1 - load - iowait], axis=-1)
    return (rng.multinomial(TICKS, ratios / ratios.sum(-1, keepdims=True)) / TICKS).astype(np.float32)


def _active_share(share: float, turn_s: float, seconds: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """(second,) the active share of each second, in periods of random length; `share` is the mean."""
    start, stop = share / (_STEPS * turn_s), (1 - share) / (_STEPS * turn_s)  # probabilities in each step
    state = _switch(rng.random(seconds * _STEPS), rng.random() < share, start, stop)
    return np.asarray(state.reshape(seconds, _STEPS).mean(-1))


@compiled
def _switch(chance, busy, start, stop):  # type: ignore[no-untyped-def]
    """(step,) 1 while active, by the probabilities to start and to stop."""
    state = np.empty(len(chance), np.float32)
    for t in range(len(chance)):
        busy = chance[t] >= stop if busy else chance[t] < start
        state[t] = busy
    return state


def _log_uniform(bounds: tuple[float, float], rng: np.random.Generator) -> float:
    return float(np.exp(rng.uniform(*np.log(bounds))))
