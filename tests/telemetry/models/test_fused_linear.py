"""The fused form of a model gives the results of the model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.core.channels import CPU, NODE, Channel, Schema
from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import Trace
from clustertwin.telemetry.models import find
from clustertwin.telemetry.models.contract import Batch, Shape, reconstruction_error
from clustertwin.telemetry.models.fused.elementwise import add_bias_and_gelu, exponential
from clustertwin.telemetry.models.fused.fused_linear import BLOCK, FusedLinear
from clustertwin.telemetry.moments.trace_buffer import TraceBuffer

#: Two simplexes, apart and out of order, and a bounded channel between them.
ODD = Schema(
    (
        Channel("a", "one"),
        Channel("p", "two"),
        Channel("m"),
        Channel("b", "one"),
        Channel("q", "two"),
        Channel("c", "one"),
    )
)


def windows(shape: Shape, n: int, seed: int, known: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    values = rng.random((n, shape.length, len(shape.schema)), np.float32)
    for indices in shape.schema.simplexes.values():
        values[..., list(indices)] = rng.dirichlet(np.full(len(indices), 0.3), (n, shape.length))
    valid = rng.random((n, shape.length)) < known
    values[~valid] = 0
    return values, valid


def trained(shape: Shape, scale: float = 1.0) -> torch.nn.Module:
    """Weights as after training: the corrections, which start at zero, are not zero."""
    torch.manual_seed(0)
    config, network = find("linear")
    model = network(config(shape=shape)).eval()
    model.prepare(torch.from_numpy(windows(shape, 300, 9)[0]))
    with torch.no_grad():
        for weight in (model.bend_to_z.weight, model.unbend_to_x.weight):
            weight.normal_(0, 0.1 * scale)
        model.unproject.weight *= scale
    return model


def agree(model: torch.nn.Module, values: np.ndarray, valid: np.ndarray) -> None:
    batch = Batch(torch.from_numpy(values), torch.from_numpy(valid), torch.arange(len(values)))
    with torch.no_grad():
        z, reconstruction = model(batch)
    fused = model.fused()
    assert isinstance(fused, FusedLinear)
    embedding, error = fused(values, valid)
    np.testing.assert_allclose(embedding, z.numpy(), atol=1e-5)
    np.testing.assert_allclose(error, reconstruction_error(batch, reconstruction).numpy(), atol=1e-5)


@pytest.mark.parametrize("schema", [CPU, CPU + NODE, ODD], ids=["cpu", "cpu and node", "odd"])
@pytest.mark.parametrize("known", [1.0, 0.7, 0.0])
def test_every_schema_and_mask_agrees_with_torch(schema: Schema, known: float) -> None:
    shape = Shape(schema, 30)
    agree(trained(shape), *windows(shape, 40, 1, known))


@pytest.mark.parametrize("n", [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 5])
def test_any_number_of_threads_agrees_with_torch(n: int) -> None:
    shape = Shape(CPU, 100)
    agree(trained(shape), *windows(shape, n, 2, 0.9))


def test_logits_far_from_zero_agree_with_torch() -> None:
    shape = Shape(CPU, 20)
    agree(trained(shape, scale=30), *windows(shape, 50, 3))


def test_the_memory_layout_of_the_windows_does_not_matter() -> None:
    shape = Shape(CPU, 20)
    fused, (values, valid) = trained(shape).fused(), windows(shape, 50, 4, 0.9)
    assert fused is not None
    columns = np.ascontiguousarray(values.transpose(1, 2, 0)).transpose(2, 0, 1)
    for by_rows, by_columns in zip(fused(values, valid), fused(columns, valid), strict=True):
        assert np.array_equal(by_rows, by_columns)


def test_after_hours_of_sliding_it_still_agrees_with_torch() -> None:
    """No state is carried from second to second that could drift."""
    rng, ring = np.random.default_rng(5), TraceBuffer(CPU, 100)
    for start_s in range(0, 20_000, 50):
        values = rng.dirichlet(np.full(4, 0.3), (3, 50)).astype(np.float32)
        ring.push(Trace("n1", (0, 1, 2), start_s, CPU, values, rng.random((3, 50)) < 0.9))
    agree(trained(Shape(CPU, 100)), *map(np.ascontiguousarray, ring.moment(19_983).windows(100)))


@given(st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=40))
def test_gelu_agrees_with_torch(numbers: list[float]) -> None:
    row = np.array([numbers], np.float32)
    expected = torch.nn.functional.gelu(torch.from_numpy(row.astype(np.float64))).numpy()
    add_bias_and_gelu(row, np.zeros(1, np.float32), 0)
    np.testing.assert_allclose(row, expected, atol=1e-6)


def test_the_exponential_is_right_to_six_digits() -> None:
    x = np.linspace(-80, 80, 999).astype(np.float32)
    approximated = np.array([exponential(value) for value in x])
    np.testing.assert_allclose(approximated, np.exp(x.astype(np.float64)), rtol=1e-6)
    assert exponential(np.float32(-1e9)) < 1e-37


def test_a_window_of_another_length_is_refused() -> None:
    fused = trained(Shape(CPU, 20)).fused()
    assert fused is not None
    with pytest.raises(SettingsError, match="accepts windows of 20 seconds and 4 channels, not 21 and 4"):
        fused(*windows(Shape(CPU, 21), 2, 0))


def test_a_model_without_a_fused_form_returns_none() -> None:
    config, network = find("patch")
    assert network(config()).fused() is None
