"""The learned policy: ten features of a waiting job -> one hidden layer -> score. The same small kernel for every job.

One kernel for all jobs makes the policy indifferent to their order and to their number: it is trained on windows of a
log and scores queues of any length. Weights lie in one vector, so that training changes them without recompiling.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numba import njit
from numpy.typing import NDArray

from clustertwin.core.errors import InputError
from clustertwin.core.extras import require
from clustertwin.workload.policies.request import Now, Policy, Request

FEATURES = 10
#: Features that order a queue by themselves, least first: requested time (SJF), size (smallest first), their product.
ORDERS = (1, 2, 9)
HIDDEN = 64
WEIGHTS = (FEATURES + 2) * HIDDEN  # a row a feature, a row of biases, a row to the score: 768
#: Where the ten weights of the first hidden unit lie: the order that a `beginner` begins with.
LEAD = np.arange(FEATURES) * HIDDEN
LIFT = 16.0  # keeps that unit above zero whatever its weights become, and changes no order


@njit
def log2(x):  # type: ignore[no-untyped-def]
    """log2(1 + x), straight between powers of two: the bits of a float already are one, and a feature needs no more."""
    return np.float64(1.0 + x).view(np.int64) * 2.0**-52 - 1023.0


@njit
def features(request, now):  # type: ignore[no-untyped-def]
    """What the kernel sees of one job, each about 0 to 1; logarithms, because jobs span seconds to days."""
    wait_s = now.time_s - request.submit_s
    return (
        log2(wait_s) / 16.0,
        log2(request.request_s) / 16.0,
        log2(request.procs) / 8.0,
        1.0 if request.procs <= now.free_procs else 0.0,
        now.free_procs / now.procs,
        log2(now.waiting) / 8.0,
        log2(wait_s / (request.request_s + 10.0)) / 8.0,  # its slowdown so far
        request.procs / now.procs,
        log2(request.ready_s - now.time_s) / 16.0,
        log2(request.request_s * request.procs) / 24.0,
    )


@njit(fastmath=True)
def kernel(x, weights):  # type: ignore[no-untyped-def]
    """relu(x W + b) v with `weights` = W row by row, b, v; high is good."""
    hidden = len(weights) // (FEATURES + 2)
    value = 0.0
    for i in range(hidden):
        unit = weights[FEATURES * hidden + i]
        for f in range(FEATURES):
            unit += x[f] * weights[f * hidden + i]
        value += max(unit, 0.0) * weights[(FEATURES + 1) * hidden + i]
    return value


def beginner(order: int, rng: np.random.Generator, sharpness: float = 32.0) -> NDArray[np.float64]:
    """Weights to train from: one hidden unit that orders by this feature, and the others at random, quiet beside it.

    From a policy that knows nothing, the first rounds of training only find out that small jobs go first.
    """
    weight = rng.standard_normal((FEATURES, HIDDEN)) * (2 / FEATURES) ** 0.5
    out = rng.standard_normal(HIDDEN) * 0.1
    weight[:, 0] = 0.0
    weight[order, 0], out[0] = sharpness**0.5, -(sharpness**0.5)
    bias = np.zeros(HIDDEN)
    bias[0] = LIFT
    return np.concatenate([weight.ravel(), bias, out])


def score(request: Request, now: Now, weights: NDArray[np.float64]) -> float:
    return -kernel(features(request, now), weights)


def learned(weights: NDArray[np.float64], name: str = "learned") -> Policy:
    """The policy with these weights."""
    return Policy(name, score, varies=True, weights=np.ascontiguousarray(weights, dtype=np.float64), usage=False)


def read_learned(path: Path) -> Policy:
    """The policy of a file that `twin sched train` wrote."""
    safetensors = require("safetensors", "rl")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys() if name == "policy"}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as reason:
        raise InputError(path, f"not a trained policy: {reason}") from reason
    if "policy" not in tensors or len(tensors["policy"]) % (FEATURES + 2):
        raise InputError(path, f"no policy of {FEATURES} features in it")
    return learned(tensors["policy"], path.stem)
