"""Work that nobody did: rng -> traces of threads that do anything a healthy thread might, with no job known.

A detector that ships must not call a site's programs strange because they are not ours. Where nobody says which job
holds a thread, it learns from threads made up here: any mix of user and system time, from next to nothing to all of
the time, steady or in turns of any length. What they never do is wait for I/O for long.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import CPU
from clustertwin.core.compiled import compiled
from clustertwin.core.traces import Trace

TICKS = 100  # of the kernel, in a second
BUSY = (0.0003, 1.0)  # part of the time; this and the next are drawn evenly on a logarithmic scale
TURN_S = (0.2, 1200.0)  # how long a thread works, or rests, at a time
FLUSH = (1e-4, 0.03)  # part of the time in which something may be flushed to a disk
_FINE = 5  # steps in a second: turns may be shorter than one


def invent(threads: int, seconds: int, rng: np.random.Generator, start_s: int = 0) -> Trace:
    """A node whose threads have nothing to do with each other."""
    values = np.stack([_thread(seconds, rng) for _ in range(threads)])
    return Trace("invented", tuple(range(threads)), start_s, CPU, values, np.ones((threads, seconds), np.bool_))


def _thread(seconds: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """(second, channel)"""
    busy, turn_s = _log_uniform(BUSY, rng), _log_uniform(TURN_S, rng)
    system = rng.beta(0.6, 3)
    peak = rng.uniform(busy, 1)  # while it is at it
    load = peak * _worked(busy / peak, turn_s, seconds, rng)  # (second,)
    load = np.maximum(load, _log_uniform((1e-4, 0.02), rng))  # at rest it does little, but seldom nothing
    load = np.clip(load * np.exp(rng.normal(0, rng.uniform(0.01, 0.8), seconds)), 0, 1)[:, None]
    # Now and then a second or two wait for a page to be written, whatever else goes on.
    flushed = _worked(_log_uniform(FLUSH, rng), rng.uniform(0.2, 3), seconds, rng)
    waited = (flushed * rng.beta(0.5, 1, seconds))[:, None] * (1 - load)
    ratios = np.concatenate([load * (1 - system), load * system, waited, 1 - load - waited], axis=-1)
    return (rng.multinomial(TICKS, ratios / ratios.sum(-1, keepdims=True)) / TICKS).astype(np.float32)


def _worked(part: float, turn_s: float, seconds: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """(second,) how much of each is worked, in turns of random lengths."""
    start, stop = part / (_FINE * turn_s), (1 - part) / (_FINE * turn_s)  # chances that give this part of the time
    state = _switch(rng.random(seconds * _FINE), rng.random() < part, start, stop)
    return np.asarray(state.reshape(seconds, _FINE).mean(-1))


@compiled
def _switch(chance, busy, start, stop):  # type: ignore[no-untyped-def]
    """(step,) whether it is at work, by the chances to start and to stop."""
    state = np.empty(len(chance), np.float32)
    for t in range(len(chance)):
        busy = chance[t] >= stop if busy else chance[t] < start
        state[t] = busy
    return state


def _log_uniform(bounds: tuple[float, float], rng: np.random.Generator) -> float:
    return float(np.exp(rng.uniform(*np.log(bounds))))
