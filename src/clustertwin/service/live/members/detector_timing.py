"""Whether a foreign detector is fast enough for the loop of this machine: a detector -> an error if it is not.

It scores a sample of random threads, outside the loop's thread. CPU time is measured, so a busy machine refuses none.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from clustertwin.core.channels import CPU
from clustertwin.core.errors import SourceError, describe
from clustertwin.core.traces import JobSpan
from clustertwin.telemetry.moments.moment import LENGTH_S, Moment, assemble

if TYPE_CHECKING:  # importing it imports torch, which takes seconds
    from clustertwin.telemetry.detection.detector import Detector

#: The threads of a large node.
THREADS = 256
#: The bundled detector needs about 0.01 s for them. The loop of a node has no other work, but a turn each second.
MOST_S = 1.0


def check_speed(detector: Detector) -> None:
    """SourceError if the detector fails on the sample, or needs too long for it."""
    moment = _sample()
    try:
        detector.score(moment)  # the first scoring compiles
        begun_s = time.thread_time()
        detector.score(moment)
    except Exception as error:  # files with a right hash may hold anything
        raise SourceError(f"{detector.version} cannot score: {describe(error)}") from error
    took_s = time.thread_time() - begun_s
    if took_s > MOST_S:
        raise SourceError(
            f"{detector.version} is too slow for this machine: {took_s:.1f} s for {THREADS} threads; "
            f"the limit is {MOST_S:g} s"
        )


def _sample() -> Moment:
    """One job on random threads."""
    cpus = tuple(range(THREADS))
    values = np.random.default_rng(0).dirichlet(np.ones(len(CPU)), (THREADS, LENGTH_S)).astype(np.float32)
    valid = np.ones((THREADS, LENGTH_S), np.bool_)
    span = JobSpan("1", "n", cpus, 0, LENGTH_S)
    return assemble(LENGTH_S, CPU, [("n", cpus, values, valid)], [span])
