"""The public check of a model: name -> nothing, or an AssertionError that names the violated property.

Plug-in authors call `check_model("their-name")`; our tests call it for every model of the table.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from clustertwin.core.channels import CPU, NODE
from clustertwin.telemetry.models import find
from clustertwin.telemetry.models.contract import Autoencoder, Batch, Shape, reconstruction_error
from clustertwin.telemetry.models.model_store import read, save


def check_model(name: str, options: dict[str, Any] | None = None) -> None:
    """Check shapes, valid ratios, masks, any number of threads, determinism, gradients, save and load."""
    for shape in (Shape(), Shape(CPU + NODE, 40)):
        model = _build(name, shape, options or {})
        batch = _batch(shape, groups=(1, 3, 7))
        model.prepare(_batch(shape, groups=(1, 3, 7), seed=2).x)
        _check_ratios(model, batch)
        _check_masks(model, batch)
        _check_groups(model, shape)
        _check_training(model, batch)
        _check_storage(name, model.eval(), batch)


def _build(name: str, shape: Shape, options: dict[str, Any]) -> Autoencoder:
    torch.manual_seed(0)
    config, network = find(name)
    first = network(config(shape=shape, **options)).eval()
    torch.manual_seed(0)
    second = network(config(shape=shape, **options))
    assert all(
        torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    ), "the same seed gives different weights"
    return first


def _batch(shape: Shape, groups: tuple[int, ...], seed: int = 1) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    n = sum(groups)
    x = torch.rand(n, shape.length, len(shape.schema), generator=rng)
    for indices in shape.schema.simplexes.values():
        x[..., list(indices)] /= x[..., list(indices)].sum(-1, keepdim=True)
    group = torch.arange(len(groups)).repeat_interleave(torch.tensor(groups))
    return Batch(x, torch.ones(n, shape.length, dtype=torch.bool), group)


@torch.no_grad()
def _check_ratios(model: Autoencoder, batch: Batch) -> None:
    z, x = model(batch)
    assert z.shape == (len(batch.x), model.config.latent), f"the embedding has shape {tuple(z.shape)}"
    assert x.shape == batch.x.shape, f"the reconstruction has shape {tuple(x.shape)}"
    assert torch.isfinite(z).all(), "an embedding is not finite"
    assert ((x >= 0) & (x <= 1)).all(), "a reconstructed ratio lies outside [0, 1]"
    for name, indices in model.config.shape.schema.simplexes.items():
        total = x[..., list(indices)].sum(-1)
        assert torch.allclose(total, torch.ones_like(total), atol=1e-5), f"the channels of {name} do not sum to one"
    assert torch.equal(x, model(batch)[1]), "the same windows give different reconstructions"


@torch.no_grad()
def _check_masks(model: Autoencoder, batch: Batch) -> None:
    valid = batch.valid.clone()
    valid[:, 10:20] = False
    other_values = batch.x.clone()
    other_values[:, 10:20] = 0.123
    masked, changed = Batch(batch.x, valid, batch.group), Batch(other_values, valid, batch.group)
    (z, x), (z_changed, x_changed) = model(masked), model(changed)
    assert torch.equal(z, z_changed), "a masked second changes the embedding"
    error, error_changed = reconstruction_error(masked, x), reconstruction_error(changed, x_changed)
    assert torch.allclose(error, error_changed), "a masked second changes the reconstruction error"
    empty = Batch(batch.x, torch.zeros_like(valid), batch.group)
    error = reconstruction_error(empty, model(empty)[1])
    assert torch.isfinite(error).all(), "the reconstruction error of a fully masked window is not finite"


@torch.no_grad()
def _check_groups(model: Autoencoder, shape: Shape) -> None:
    for groups in ((1,), (2, 1), (33,)):
        batch = _batch(shape, groups)
        assert model(batch)[0].shape[0] == sum(groups), f"groups of {groups} threads are not accepted"
    batch = _batch(shape, (4, 2))
    alone = Batch(batch.x[:4], batch.valid[:4], batch.group[:4])
    assert torch.allclose(model(batch)[0][:4], model(alone)[0], atol=1e-5), "one group changes another's embedding"


def _check_training(model: Autoencoder, batch: Batch) -> None:
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(8):
        loss, _ = model.loss(batch)
        optimiser.zero_grad()
        loss.backward()
        without = [key for key, weight in model.named_parameters() if weight.grad is None]
        assert not without, f"no gradient reaches {', '.join(without)}"
        optimiser.step()
        losses.append(float(loss.detach()))
    perfect = losses[0] < 1e-6  # principal components reconstruct a short window exactly: there is nothing to lower
    assert perfect or losses[-1] < losses[0], f"eight steps do not lower the loss: {losses[0]:.4g} -> {losses[-1]:.4g}"


@torch.no_grad()
def _check_storage(name: str, model: Autoencoder, batch: Batch) -> None:
    with tempfile.TemporaryDirectory() as directory:
        save(Path(directory), name, model)
        loaded = read(Path(directory))
        assert b"pickle" not in (Path(directory) / "weights.safetensors").read_bytes(), "the weights contain a pickle"
    assert loaded.model.config == model.config, "saving and loading changes the config"
    assert torch.equal(loaded.model(batch)[1], model(batch)[1]), "saving and loading changes the weights"
