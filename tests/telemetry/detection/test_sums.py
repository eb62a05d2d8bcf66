"""The sums of a batch of threads equal those of a plain loop over single threads."""

from __future__ import annotations

import numpy as np
import pytest

from clustertwin.telemetry.detection.features.sums import BLOCK, BLOCK_S, Sums, sums

LEVELS = np.array([0.1, 0.5], np.float32)


def plain(values: np.ndarray, valid: np.ndarray, wanted: np.ndarray, job: np.ndarray, length: int) -> Sums:
    """Thread by thread, second by second, in double precision."""
    values, valid = values[:, -length:].astype(np.float64), valid[:, -length:]
    n, _, channels = values.shape
    seconds = np.zeros(n, np.int32)
    own, joint = np.zeros((n, 6, channels)), np.zeros((n, 6, channels))
    above = np.zeros((n, 2, len(LEVELS)))
    for i in range(n):
        first = length - min(max(wanted[i], 0), length)
        here = [t for t in range(first, length) if valid[i, t]]
        seconds[i] = len(here)
        others = np.flatnonzero((job == job[i]) & (np.arange(n) != i)) if job[i] >= 0 else np.zeros(0, int)
        for t in here:
            x = values[i, t]
            own[i, 0] += x
            own[i, 1] += x**2
            if t + 1 in here:
                own[i, 2] += abs(values[i, t + 1] - x)
            for k, level in enumerate(LEVELS):
                above[i, :, k] += values[i, t, :2].astype(np.float32) > level
            peers = others[valid[others, t]]
            if len(peers):
                o = values[peers, t].mean(0)
                joint[i] += np.stack([np.ones(channels), x, o, x * x, o * o, x * o])
        for end in range(length, first + BLOCK_S - 1, -BLOCK_S):
            block = [t for t in here if end - BLOCK_S <= t < end]
            if len(block) * 2 > BLOCK_S:
                mean = values[i, block].mean(0)
                own[i, 3:] += np.stack([mean, mean**2, np.ones(channels)])
    return Sums(seconds, own, above, joint)


def agree(values: np.ndarray, valid: np.ndarray, wanted: np.ndarray, job: np.ndarray) -> None:
    for length, got in zip((20, 60), sums(values, valid, wanted, job, (0, 1), LEVELS, (20, 60)), strict=True):
        want = plain(values, valid, wanted, job, length)
        assert np.array_equal(got.seconds, want.seconds)
        for name in ("own", "above", "joint"):
            np.testing.assert_allclose(getattr(got, name), getattr(want, name), atol=1e-4, err_msg=name)


def drawn(threads: int, known: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ratios as a recording holds them, which seconds are valid, and how many of the last count."""
    rng = np.random.default_rng(threads)
    values = rng.dirichlet(np.full(3, 0.5), (threads, 60)).astype(np.float32)
    return values, rng.random((threads, 60)) < known, rng.integers(-5, 80, threads).astype(np.int32)


@pytest.mark.parametrize(("threads", "known"), [(1, 1.0), (9, 0.7), (BLOCK + 3, 0.9)])
def test_both_lengths_agree_with_a_plain_loop(threads: int, known: float) -> None:
    job = np.random.default_rng(0).integers(-1, max(threads // 4, 1), threads).astype(np.int32)
    agree(*drawn(threads, known), job)


@pytest.mark.medium
def test_a_job_of_more_threads_than_a_block_is_compared_as_a_whole() -> None:
    job = np.full(BLOCK + 20, 1, np.int32)
    job[[0, 5, 70]] = 0, 2, -1
    agree(*drawn(len(job), 0.9), job)


def test_the_memory_layout_of_the_seconds_does_not_matter() -> None:
    values, valid, wanted = drawn(10, 0.8)
    as_on_a_tape = np.ascontiguousarray(values.transpose(1, 2, 0)).transpose(2, 0, 1)
    agree(as_on_a_tape, np.ascontiguousarray(valid.T).T, wanted, np.arange(10, dtype=np.int32) // 4)


def test_no_threads_give_no_sums() -> None:
    nothing = sums(*drawn(0, 1.0), np.zeros(0, np.int32), (0, 1), LEVELS, (20, 60))
    assert [each.own.shape for each in nothing] == [(0, 6, 3)] * 2


def test_a_length_beyond_the_seconds_counts_what_there_is() -> None:
    values, valid, wanted = drawn(5, 1.0)
    short = sums(values, valid, wanted, np.full(5, -1, np.int32), (0, 1), LEVELS, (60, 300))
    assert np.array_equal(short[0].own, short[1].own)
