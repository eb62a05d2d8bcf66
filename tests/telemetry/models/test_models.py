import json

import numpy as np
import pytest
import torch

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.models import MODELS, find
from clustertwin.telemetry.models.architectures.graph_layer import GraphUpdate
from clustertwin.telemetry.models.check import check_model
from clustertwin.telemetry.models.contract import Batch, Shape, reconstruction_error
from clustertwin.telemetry.models.model_store import ModelError, read, save


@pytest.mark.medium
@pytest.mark.parametrize(
    "name",
    [name if name in ("linear", "patch", "vae") else pytest.param(name, marks=pytest.mark.slow) for name in MODELS],
)
def test_every_model_satisfies_the_contract(name):
    check_model(name)


def test_the_error_for_an_unknown_model_lists_the_known_ones():
    with pytest.raises(SettingsError, match=r"unknown model 'nonsense'; available models: ae,"):
        find("nonsense")


def test_other_is_not_an_input():
    assert Shape().inputs == (0, 1, 2)


def test_the_error_is_the_mean_over_channels_and_valid_seconds():
    x = torch.zeros(1, 4, 4)
    valid = torch.tensor([[True, True, False, False]])
    reconstruction = torch.zeros(1, 4, 4)
    reconstruction[0, 0, 0] = 0.4  # 0.16 over two valid seconds of four channels
    reconstruction[0, 3, 3] = 9.0  # masked
    assert reconstruction_error(Batch(x, valid, torch.zeros(1)), reconstruction).item() == pytest.approx(0.16 / 8)


def test_the_graph_layer_agrees_with_a_loop_over_pairs():
    torch.manual_seed(0)
    layer = GraphUpdate(latent=5, hidden=7)
    torch.nn.init.normal_(layer.f[-1].weight)
    z = torch.randn(9, 5)
    group = torch.tensor([0, 0, 0, 1, 2, 2, 2, 2, 2])
    expected = torch.empty_like(z)
    for i in range(9):
        others = [j for j in range(9) if group[j] == group[i]]
        a = torch.stack([layer.weigh(torch.tanh(layer.receive(z[i]) + layer.send(z[j])))[0] for j in others])
        alpha = a.exp() / a.exp().sum()
        message = sum(alpha[k] * z[j] for k, j in enumerate(others))
        expected[i] = z[i] + layer.f(z[i] + message)
    assert torch.allclose(layer(z, group), expected, atol=1e-6)


@pytest.fixture
def stored(tmp_path):
    config, network = find("linear")
    save(tmp_path, "linear", network(config()), {"command": "test"})
    return tmp_path


def test_notes_are_stored_with_the_model(stored):
    assert read(stored).notes == {"command": "test"}


def test_a_flipped_bit_is_refused(stored):
    weights = bytearray((stored / "weights.safetensors").read_bytes())
    weights[-100] ^= 1
    (stored / "weights.safetensors").write_bytes(weights)
    with pytest.raises(ModelError, match="damaged or belongs to another model"):
        read(stored)


def test_weights_of_another_shape_are_refused(stored):
    card = json.loads((stored / "model.json").read_text())
    card["config"]["hidden"] = 7
    (stored / "model.json").write_text(json.dumps(card))
    with pytest.raises(ModelError, match="do not fit"):
        read(stored)


@pytest.mark.parametrize("card", ["", "[]", "{}", '{"name": "linear", "sha256": "", "config": {"shape": 3}}'])
def test_an_invalid_card_is_refused(stored, card):
    (stored / "model.json").write_text(card)
    with pytest.raises(ModelError, match=r"model\.json"):
        read(stored)


def test_a_directory_without_a_model_is_refused(tmp_path):
    with pytest.raises(ModelError, match="not a model"):
        read(tmp_path)


def test_nan_is_treated_as_masked():
    from clustertwin.core.channels import CPU
    from clustertwin.core.traces import Windows
    from clustertwin.telemetry.models.batches import group_windows

    values = np.full((1, 100, 4), 0.25, np.float32)
    values[0, 3] = np.nan
    empty = np.array([""])
    windows = Windows(
        CPU, values, np.ones((1, 100), bool), np.zeros(1, np.int64), empty, np.zeros(1, np.int32),
        empty, empty, empty, empty, empty,
    )  # fmt: skip
    grouped = group_windows(windows, "", Shape())
    assert not grouped.valid[0, 3]
    assert torch.isfinite(grouped.x).all()


def test_the_linear_path_starts_as_pca():
    from tests.telemetry.models.test_training import HELD_OUT, TRAIN

    config, network = find("linear")
    model = network(config(latent=12))
    inputs = torch.from_numpy(TRAIN.values[:, :, :3]).flatten(1).double()
    model.prepare(torch.from_numpy(TRAIN.values))
    axes = torch.linalg.svd(inputs - inputs.mean(0), full_matrices=False)[2][:12]
    x = torch.from_numpy(HELD_OUT.values)
    centred = x[:, :, :3].flatten(1).double() - inputs.mean(0)
    residual = (centred - centred @ axes.T @ axes).unflatten(1, (100, 3))
    pca = (residual.square().sum(-1) + residual.sum(-1).square()).mean() / 4
    batch = Batch(x, torch.ones(x.shape[:2], dtype=torch.bool), torch.arange(len(x)))
    with torch.no_grad():
        error = reconstruction_error(batch, model(batch)[1]).mean()
    assert 0.5 * pca < error < pca, "clipping to valid ratios can only help"


def test_a_latent_larger_than_the_window_is_accepted():
    check_model("linear", {"latent": 300})


def test_the_patch_model_with_steps_satisfies_the_contract_and_computes_them():
    check_model("patch", {"steps": 10.0})
    config, network = find("patch")
    model = network(config(steps=10.0))
    x = torch.zeros(2, 100, 4)
    x[0, ::2, 0], x[..., 3] = 0.5, 1 - x[..., 0]
    valid = torch.ones(2, 100, dtype=torch.bool)
    valid[0, 10] = False
    steps = model.steps(Batch(x, valid, torch.arange(2)))
    assert steps[0, 1:10, 0].tolist() == [0.5] * 9
    assert steps[0, 10:12].abs().sum() == 0, "a masked second has no step before or after it"
    assert steps[1].abs().sum() == 0, "a constant thread has no steps"


def test_the_contrastive_loss_is_small_if_jobs_are_separated():
    from clustertwin.telemetry.models.contrastive_loss import contrastive_loss

    job = torch.tensor([0, 0, 1, 1, -1, -1])
    apart = torch.eye(3).repeat_interleave(2, 0)
    assert contrastive_loss(apart, job) < 1e-3 < 1 < contrastive_loss(apart, torch.tensor([0, 1, 0, 1, 0, 1]))
    assert contrastive_loss(apart, torch.arange(6)) == 0, "jobs of one thread have no positives"
