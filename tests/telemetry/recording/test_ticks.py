"""Ratios as bytes: precision, sums, refused values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from clustertwin.core.channels import CPU, NODE, Schema
from clustertwin.telemetry.recording.ticks import INVALID, Ticks


def there_and_back(
    values: NDArray[np.float32], valid: NDArray[np.bool_], schema: Schema = CPU
) -> tuple[NDArray[np.float32], NDArray[np.bool_], int]:
    ticks = Ticks.of(schema)
    stored = np.empty((len(values), len(ticks.stored), values.shape[1]), np.uint8)
    refused = ticks.quantise(values, valid, stored)
    back, seen = np.empty_like(values), np.empty_like(valid)
    ticks.dequantise(stored, back, seen)
    return back, seen, refused


def one(*ratios: float) -> NDArray[np.float32]:
    return np.array(ratios, np.float32).reshape(1, 1, -1)


YES = np.ones((1, 1), np.bool_)


def test_the_first_channel_of_a_simplex_is_not_stored() -> None:
    ticks = Ticks.of(CPU + Schema(NODE.channels[:2]))
    assert ticks.stored == (1, 2, 3, 4, 5)
    assert ticks.steps == (100, 100, 100, 250, 250)
    assert ticks.rests == ((0, (0, 1, 2)),)


def test_whole_ticks_are_exact() -> None:
    back, _, _ = there_and_back(one(0.47, 0.05, 0.13, 0.35), YES)
    assert back.ravel() == pytest.approx([0.47, 0.05, 0.13, 0.35], abs=1e-7)


def test_an_excess_of_rounded_parts_is_subtracted_from_the_largest() -> None:
    back, _, _ = there_and_back(one(0.0, 0.949, 0.016, 0.035), YES)  # 95 + 2 + 4 ticks
    assert back.ravel() == pytest.approx([0.0, 0.94, 0.02, 0.04], abs=1e-7)


@given(st.lists(st.tuples(*[st.integers(0, 1000)] * 4).filter(any), min_size=1, max_size=40))
def test_any_shares_come_back_within_a_tick_and_sum_to_one(shares: list[tuple[int, int, int, int]]) -> None:
    values = np.array(shares, np.float32)[None]
    values /= values.sum(axis=2, keepdims=True)
    back, valid, refused = there_and_back(values, np.ones(values.shape[:2], np.bool_))
    assert valid.all()
    assert refused == 0
    assert np.abs(back[..., 1:] - values[..., 1:]).max() <= 0.01 + 1e-6
    assert np.abs(back[..., 0] - values[..., 0]).max() <= 0.015 + 1e-6
    assert np.abs(back.sum(axis=2) - 1).max() < 1e-6
    assert back.min() >= 0
    assert back.max() <= 1


def test_a_bounded_channel_is_off_by_at_most_two_thousandths() -> None:
    memory = np.linspace(0, 1, 5001, dtype=np.float32)
    values = np.stack([memory * 0, memory * 0, memory * 0, memory * 0 + 1, memory, 1 - memory], axis=1)[None]
    back, _, _ = there_and_back(values, np.ones((1, 5001), np.bool_), CPU + Schema(NODE.channels[:2]))
    assert np.abs(back - values).max() <= 0.002 + 1e-6


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.5, 1.5])
def test_a_value_that_is_not_a_ratio_is_recorded_as_invalid_and_counted(value: float) -> None:
    values = np.tile(one(0.5, 0.0, 0.0, 0.5), (1, 3, 1))
    values[0, 1, 0] = value
    back, valid, refused = there_and_back(values, np.ones((1, 3), np.bool_))
    assert valid.tolist() == [[True, False, True]]
    assert refused == 1
    assert back[0, 1].tolist() == [0, 0, 0, 0]


def test_shares_that_do_not_sum_to_one_are_refused() -> None:
    _, valid, refused = there_and_back(one(0.5, 0.2, 0.0, 0.0), YES)
    assert (valid.any(), refused) == (False, 1)


def test_garbage_under_the_mask_is_neither_stored_nor_counted() -> None:
    back, valid, refused = there_and_back(one(np.nan, 7, 0, 0), ~YES)
    assert (valid.any(), refused, back.sum()) == (False, 0, 0)


def test_invalid_is_a_byte_no_ratio_has() -> None:
    assert max(Ticks.of(CPU + NODE).steps) < INVALID
