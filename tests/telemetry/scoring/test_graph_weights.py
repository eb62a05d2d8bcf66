"""The weights of a graph model without torch are those of the model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from clustertwin.telemetry.models.graph import GraphUpdate
from clustertwin.telemetry.scoring.graph_weights import graph_weights


def naive(update: GraphUpdate, z: np.ndarray) -> np.ndarray:
    """α as the formula says it, pair by pair, in double precision."""
    weight = {name: value.numpy().astype(np.float64) for name, value in update.state_dict().items()}
    a = np.empty((len(z), len(z)))
    for i, own in enumerate(z):
        for j, other in enumerate(z):
            pair = weight["receive.weight"] @ own + weight["receive.bias"] + weight["send.weight"] @ other
            a[i, j] = weight["weigh.weight"][0] @ np.tanh(pair)
    e = np.exp(a - a.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


@pytest.mark.parametrize("threads", [1, 2, 33])
@pytest.mark.parametrize("hidden", [32, 7])
@pytest.mark.parametrize("spread", [1.0, 10.0, 100.0])
def test_every_pair_weighs_what_the_formula_says(threads: int, hidden: int, spread: float) -> None:
    torch.manual_seed(0)
    update = GraphUpdate(16, hidden)
    z = np.random.default_rng(0).normal(0, spread, (threads, 16)).astype(np.float32)
    alpha = graph_weights(update, z)
    np.testing.assert_allclose(alpha, naive(update, z), atol=1e-5)
    np.testing.assert_allclose(alpha.sum(1), 1, atol=1e-5)


def test_the_message_is_the_one_the_layer_takes_in() -> None:
    torch.manual_seed(1)
    update = GraphUpdate(8, 12)
    torch.nn.init.normal_(update.f[-1].weight)
    z = torch.randn(20, 8)
    with torch.no_grad():
        message = torch.from_numpy(graph_weights(update, z.numpy())) @ z
        wanted = update(z, torch.zeros(20, dtype=torch.int64))
        torch.testing.assert_close(z + update.f(z + message), wanted, atol=1e-5, rtol=0)
