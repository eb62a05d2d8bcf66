"""The attention weights computed without torch are those of the model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from clustertwin.telemetry.models.architectures.graph_layer import GraphUpdate
from clustertwin.telemetry.models.fused.graph_attention import attention_messages, attention_weights


def naive(update: GraphUpdate, z: np.ndarray) -> np.ndarray:
    """α by its formula, pair by pair, in double precision."""
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
def test_attention_weights_agree_with_the_formula(threads: int, hidden: int, spread: float) -> None:
    torch.manual_seed(0)
    update = GraphUpdate(16, hidden)
    z = np.random.default_rng(0).normal(0, spread, (threads, 16)).astype(np.float32)
    alpha = attention_weights(update, z)
    np.testing.assert_allclose(alpha, naive(update, z), atol=1e-5)
    np.testing.assert_allclose(alpha.sum(1), 1, atol=1e-5)


@pytest.mark.parametrize(("threads", "spread"), [(20, 1.0), (300, 1.0), (150, 100.0)])
def test_the_fused_messages_are_those_of_training(threads: int, spread: float) -> None:
    torch.manual_seed(1)
    update, z = GraphUpdate(8, 12), spread * torch.randn(threads, 8)
    expected = attention_weights(update, z.numpy()) @ z.numpy()
    np.testing.assert_allclose(attention_messages(update, z.numpy()), expected, atol=1e-5 * spread)
    with torch.no_grad():
        messages = update._messages(z, torch.tensor([threads]))
    np.testing.assert_allclose(messages.numpy(), expected, atol=1e-5 * spread)


@pytest.mark.medium
def test_a_layer_gives_the_same_result_with_and_without_gradients() -> None:
    torch.manual_seed(2)
    update, z = GraphUpdate(8, 12), torch.randn(150, 8)
    torch.nn.init.normal_(update.f[-1].weight)
    group = torch.repeat_interleave(torch.arange(3), torch.tensor([100, 1, 49]))
    with_gradients = update(z, group).detach()
    with torch.no_grad():
        torch.testing.assert_close(update(z, group), with_gradients, atol=1e-5, rtol=0)
