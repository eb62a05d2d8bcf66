"""The learned policy: ten features of a waiting job -> one hidden layer -> score.

The same small kernel network scores every job, so the policy does not depend on the order or the number of jobs. It is
trained on sequences of a log and scores queues of any length. All weights are in one vector, so that training changes
them without a new compilation.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import orjson
from numba import njit
from numpy.typing import NDArray

from clustertwin.core.errors import InputError
from clustertwin.core.extras import require
from clustertwin.core.foreign_files import open_regular
from clustertwin.workload.policies.policy_contract import Now, Policy, Request
from clustertwin.workload.policies.trained_range import TrainedRange, range_from

FEATURES = 10
#: Features that alone order a queue, lowest first: requested time (SJF), processors (smallest first), their product.
ORDER_FEATURES = (1, 2, 9)
HIDDEN = 64
WEIGHTS = (FEATURES + 2) * HIDDEN  # one row for each feature, one row of biases, one row of output weights: 768
#: The indices of the ten input weights of the first hidden unit, which `initial_weights` sets to an order.
FIRST_UNIT = np.arange(FEATURES) * HIDDEN
FIRST_UNIT_BIAS = 16.0  # keeps the ReLU of that unit active for all weights in use; a constant changes no order


@njit
def log2_1p(x):  # type: ignore[no-untyped-def]
    """log2(1 + x), linear between powers of two. It reads the bits of the float, which is fast and precise enough."""
    return np.float64(1.0 + x).view(np.int64) * 2.0**-52 - 1023.0


@njit
def features(request, now):  # type: ignore[no-untyped-def]
    """The features of one job, each about 0 to 1. Logarithms, because times range from seconds to days."""
    wait_s = now.time_s - request.submit_s
    return (
        log2_1p(wait_s) / 16.0,
        log2_1p(request.request_s) / 16.0,
        log2_1p(request.procs) / 8.0,
        1.0 if request.procs <= now.free_procs else 0.0,
        now.free_procs / now.procs,
        log2_1p(now.waiting) / 8.0,
        log2_1p(wait_s / (request.request_s + 10.0)) / 8.0,  # its slowdown so far
        request.procs / now.procs,
        log2_1p(request.ready_s - now.time_s) / 16.0,
        log2_1p(request.request_s * request.procs) / 24.0,
    )


@njit(fastmath=True)
def kernel(x, weights):  # type: ignore[no-untyped-def]
    """relu(x W + b) v with `weights` = (W row by row, b, v). The job with the highest value goes first."""
    hidden = len(weights) // (FEATURES + 2)
    value = 0.0
    for i in range(hidden):
        unit = weights[FEATURES * hidden + i]
        for f in range(FEATURES):
            unit += x[f] * weights[f * hidden + i]
        value += max(unit, 0.0) * weights[(FEATURES + 1) * hidden + i]
    return value


def initial_weights(order_feature: int, rng: np.random.Generator, sharpness: float = 32.0) -> NDArray[np.float64]:
    """Weights to start training from: the first hidden unit orders by one feature, the others are small and random.

    A policy with random weights only learns in its first rounds that small jobs go first. With 0 `sharpness` all
    weights are random.
    """
    weight = rng.standard_normal((FEATURES, HIDDEN)) * (2 / FEATURES) ** 0.5
    output = rng.standard_normal(HIDDEN) * 0.1
    weight[:, 0] = 0.0
    weight[order_feature, 0], output[0] = sharpness**0.5, -(sharpness**0.5)
    bias = np.zeros(HIDDEN)
    bias[0] = FIRST_UNIT_BIAS
    return np.concatenate([weight.ravel(), bias, output])


def score(request: Request, now: Now, weights: NDArray[np.float64]) -> float:
    return -kernel(features(request, now), weights)


def learned(weights: NDArray[np.float64], name: str = "learned", trained: TrainedRange | None = None) -> Policy:
    """The policy with these weights."""
    vector = np.ascontiguousarray(weights, dtype=np.float64)
    return Policy(name, score, varies=True, weights=vector, usage=False, trained=trained)


def read_learned(path: Path) -> Policy:
    """The policy in a file that `twin sched train` wrote."""
    safetensors = require("safetensors", "rl")
    try:
        os.close(open_regular(path))
        with safetensors.safe_open(path, framework="numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys() if name == "policy"}  # noqa: SIM118
            trained = range_from(orjson.loads((file.metadata() or {}).get("clustertwin", "{}")))
    except (OSError, safetensors.SafetensorError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise InputError(path, f"not a trained policy: {error}") from error
    weights = tensors.get("policy", np.zeros(0))
    if weights.ndim != 1 or not len(weights) or len(weights) % (FEATURES + 2):
        raise InputError(path, f"contains no policy with {FEATURES} features")
    return learned(weights, path.stem, trained)
