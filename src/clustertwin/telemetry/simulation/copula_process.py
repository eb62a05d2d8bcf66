"""The Gaussian copula process of one job: signature, threads, seconds, rng -> ticks (thread, second, channel).

A stationary Gaussian series with the signature's spectrum gives every share its autocorrelation and cross-correlation.
The quantile function of the share turns the series into values with the recorded marginal distribution.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.simulation.signature import FREQUENCIES, NORMAL_SCORES, SEGMENT_S, Signature
from clustertwin.telemetry.simulation.stick_breaking import TICKS, to_ticks

_PROBABILITIES = np.array([NormalDist().cdf(score) for score in NORMAL_SCORES])
_FINE = 16  # table cells between two normal scores of a signature


def draw_ticks(signature: Signature, threads: int, seconds: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """(thread, second, channel) ticks, `TICKS` per second, of a job between its start and its end."""
    scores = latent_series(signature, threads, seconds, rng)  # (thread, share, second)
    scores += np.outer(signature.trend, normal_score_ramp(seconds)).astype(np.float32)
    return to_ticks(_apply_marginals(signature.quantiles, scores), signature.order)


def normal_score_ramp(seconds: int) -> NDArray[np.float64]:
    """A ramp of normal scores with unit variance: with a trend of 1, a share goes through its quantiles in order."""
    return np.interp((np.arange(seconds) + 0.5) / seconds, _PROBABILITIES, NORMAL_SCORES)


def overwrite_edges(ticks: NDArray[np.uint8], signature: Signature, rng: np.random.Generator) -> None:
    """Replace the first and last seconds of a job by draws around the recorded means of its start and end."""
    seconds = ticks.shape[1]
    for means, first in ((signature.start, 0), (signature.end, max(0, seconds - len(signature.end)))):
        for k, ratios in enumerate(means[: seconds - first]):
            ticks[:, first + k] = rng.multinomial(TICKS, ratios / ratios.sum(), size=len(ticks))


def latent_series(signature: Signature, threads: int, seconds: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """The Gaussian series of a job: (thread, share, second), each with unit variance."""
    # A Fourier series is periodic. One more segment is drawn and dropped, so that the ends are not correlated.
    length = _fast_length(seconds + SEGMENT_S)
    spectrum = _coloured_noise(signature.own, threads, length, rng)
    if signature.shared.any():
        spectrum += _coloured_noise(signature.shared, 1, length, rng)
    series: NDArray[np.float32] = np.fft.irfft(spectrum, length, axis=-1).astype(np.float32, copy=False)[..., :seconds]
    return series


def _coloured_noise(
    factor: NDArray[np.complex128], series: int, length: int, rng: np.random.Generator
) -> NDArray[np.complex64]:
    """White noise times a spectral factor: (series, share, frequency)."""
    count = length // 2 + 1
    white = rng.standard_normal((series, 3, count, 2), dtype=np.float32).view(np.complex64)[..., 0]
    white *= np.float32(np.sqrt(length / 2))
    white[..., [0, -1]] = white[..., [0, -1]].real * np.float32(np.sqrt(2))  # the first and last are real
    # The nearest known frequency instead of an interpolation keeps the variance of the factors.
    nearest = np.rint(np.linspace(0, FREQUENCIES - 1, count)).astype(np.intp)
    factors = factor.astype(np.complex64)[nearest]  # (frequency, 3, 3)
    coloured = np.empty_like(white)
    for i in range(3):  # the factor is lower triangular: share i depends on shares 0 … i
        coloured[:, i] = sum(factors[:, i, j] * white[:, j] for j in range(i + 1))
    return coloured


def _apply_marginals(quantiles: NDArray[np.float64], scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """(thread, share, second) normal scores -> (thread, second, share) values, by a table finer than the quantiles."""
    cells = (len(NORMAL_SCORES) - 1) * _FINE
    lowest, highest = NORMAL_SCORES[0], NORMAL_SCORES[-1]
    grid = np.linspace(lowest, highest, cells + 1)
    scores = (scores - np.float32(lowest)) * np.float32(cells / (highest - lowest)) + np.float32(0.5)
    cell = np.clip(scores, 0, cells).astype(np.intp)
    values = np.empty((scores.shape[0], scores.shape[2], 3), np.float32)
    for i in range(3):
        values[..., i] = np.interp(grid, NORMAL_SCORES, quantiles[i]).astype(np.float32)[cell[:, i]]
    return values


def _fast_length(length: int) -> int:
    """The next even length with small prime factors, for which the Fourier transform is fast."""
    step = 2 ** max(1, length.bit_length() - 4)
    return -(-length // step) * step
