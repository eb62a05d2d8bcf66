"""Draw the threads of one job: signature, threads, seconds, rng -> ticks (thread, second, channel)."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.simulation.shares import TICKS, to_ticks
from clustertwin.telemetry.simulation.signature import FREQUENCIES, SCORES, SEGMENT_S, Signature

_RANKS = np.array([NormalDist().cdf(score) for score in SCORES])
_FINE = 16  # table cells spread two scores of a signature


def draw(signature: Signature, threads: int, seconds: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """(thread, second, channel) ticks, `TICKS` to a second, of a job in full swing."""
    scores = latent(signature, threads, seconds, rng)  # (thread, share, second)
    scores += np.outer(signature.trend, climb(seconds)).astype(np.float32)
    return to_ticks(_look_up(signature.quantiles, scores), signature.order)


def climb(seconds: int) -> NDArray[np.float64]:
    """A ramp in normal scores, of unit variance: with a trend of 1, a share takes its quantiles in order."""
    return np.interp((np.arange(seconds) + 0.5) / seconds, _RANKS, SCORES)


def add_edges(ticks: NDArray[np.uint8], signature: Signature, rng: np.random.Generator) -> None:
    """Put a job's start and its end, second by second, in the place of its first and last ticks."""
    seconds = ticks.shape[1]
    for rows, at in ((signature.start, 0), (signature.end, max(0, seconds - len(signature.end)))):
        for k, ratios in enumerate(rows[: seconds - at]):
            ticks[:, at + k] = rng.multinomial(TICKS, ratios / ratios.sum(), size=len(ticks))


def latent(signature: Signature, threads: int, seconds: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """The Gaussian series behind a job: (thread, share, second), each of unit variance."""
    # One segment more than asked for is thrown away: a Fourier series bites its own tail.
    length = _even(seconds + SEGMENT_S)
    own = _coloured(signature.own, threads, length, rng)
    if signature.shared.any():
        own += _coloured(signature.shared, 1, length, rng)
    series: NDArray[np.float32] = np.fft.irfft(own, length, axis=-1).astype(np.float32, copy=False)[..., :seconds]
    return series


def _coloured(
    factor: NDArray[np.complex128], series: int, length: int, rng: np.random.Generator
) -> NDArray[np.complex64]:
    """White noise times a spectral factor: (series, share, frequency)."""
    count = length // 2 + 1
    white = rng.standard_normal((series, 3, count, 2), dtype=np.float32).view(np.complex64)[..., 0]
    white *= np.float32(np.sqrt(length / 2))
    white[..., [0, -1]] = white[..., [0, -1]].real * np.float32(np.sqrt(2))  # these two are real by nature
    # The nearest known frequency, not a mean of two: only so is the variance what the factors say.
    nearest = np.rint(np.linspace(0, FREQUENCIES - 1, count)).astype(np.intp)
    spread = factor.astype(np.complex64)[nearest]  # (frequency, 3, 3)
    coloured = np.empty_like(white)
    for i in range(3):  # a lower factor: share i hears shares 0 … i
        coloured[:, i] = sum(spread[:, i, j] * white[:, j] for j in range(i + 1))
    return coloured


def _look_up(quantiles: NDArray[np.float64], scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """(thread, share, second) normal scores -> (thread, second, share) values, by a table finer than the quantiles."""
    cells = (len(SCORES) - 1) * _FINE
    grid = np.linspace(SCORES[0], SCORES[-1], cells + 1)
    scores = (scores - np.float32(SCORES[0])) * np.float32(cells / (SCORES[-1] - SCORES[0])) + np.float32(0.5)
    cell = np.clip(scores, 0, cells).astype(np.intp)
    values = np.empty((scores.shape[0], scores.shape[2], 3), np.float32)
    for i in range(3):
        values[..., i] = np.interp(grid, SCORES, quantiles[i]).astype(np.float32)[cell[:, i]]
    return values


def _even(length: int) -> int:
    """The next even length of small prime factors, where the Fourier transform is fast."""
    step = 2 ** max(1, length.bit_length() - 4)
    return -(-length // step) * step
