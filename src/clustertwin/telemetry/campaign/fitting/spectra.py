"""Spectra of the normal scores of jobs: jobs of (thread, second, share) -> what threads share and what each owns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from clustertwin.telemetry.simulation.signature import FREQUENCIES, SEGMENT_S

_HOP_S = SEGMENT_S // 4
_TAPER = np.hanning(SEGMENT_S + 1)[:-1]
_TAPER_POWER = float((_TAPER**2).sum())
#: How often each frequency occurs in a two-sided spectrum: the mean of density × WEIGHTS is the variance.
WEIGHTS = np.r_[1.0, np.full(FREQUENCIES - 2, 2.0), 1.0] / SEGMENT_S


@dataclass(frozen=True, slots=True)
class Spectrum:
    """Hermitian matrices per frequency; their weighted sum over frequencies is a covariance."""

    total: NDArray[np.complex128]  # (frequency, share, share) of one thread
    shared: NDArray[np.complex128]  # (frequency, share, share) between two threads of one job


def estimate(jobs: Sequence[NDArray[np.float64]]) -> Spectrum:
    """Welch's estimate over all jobs. The mean is kept: how far jobs differ from each other is part of the spectrum."""
    total = np.zeros((FREQUENCIES, 3, 3), np.complex128)
    between = np.zeros_like(total)
    segments, pairs = 0, 0
    for scores in jobs:
        if scores.shape[1] < SEGMENT_S:  # short jobs still say how high they stand and how fast they change
            scores = np.pad(scores, ((0, 0), (0, SEGMENT_S - scores.shape[1]), (0, 0)), mode="reflect")
        cut = sliding_window_view(scores, SEGMENT_S, axis=1)[:, ::_HOP_S] * _TAPER  # (thread, segment, share, 64)
        waves = np.fft.rfft(cut, axis=-1) / np.sqrt(_TAPER_POWER)  # (thread, segment, share, frequency)
        mine = np.einsum("tsif,tsjf->fij", waves, waves.conj(), optimize=True)
        everyone = waves.sum(axis=0)
        total += mine
        between += np.einsum("sif,sjf->fij", everyone, everyone.conj(), optimize=True) - mine
        threads = len(scores)
        segments += threads * cut.shape[1]
        pairs += threads * (threads - 1) * cut.shape[1]
    return Spectrum(total / max(segments, 1), between / max(pairs, 1))


def factor(matrices: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Lower factors L with L·Lᴴ = the nearest positive matrices, with a real diagonal."""
    values, vectors = np.linalg.eigh((matrices + matrices.conj().swapaxes(1, 2)) / 2)
    root = vectors * np.sqrt(np.clip(values, 1e-9, None))[:, None, :]
    _, upper = np.linalg.qr(root.conj().swapaxes(1, 2))  # root·rootᴴ = Rᴴ·R
    phase = np.einsum("fii->fi", upper)
    phase = np.where(np.abs(phase) > 0, phase / np.maximum(np.abs(phase), 1e-300), 1)
    lower: NDArray[np.complex128] = (upper * phase.conj()[:, :, None]).conj().swapaxes(1, 2)
    return lower


def product(lower: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """What `factor` took apart."""
    return lower @ lower.conj().swapaxes(1, 2)
