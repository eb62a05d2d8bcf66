"""Cross-spectra of normal scores: jobs of (thread, second, share) -> total spectrum, and the part common to a job."""

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
#: Weights of the frequencies of a one-sided spectrum: the sum of density × WEIGHTS is the variance.
WEIGHTS = np.r_[1.0, np.full(FREQUENCIES - 2, 2.0), 1.0] / SEGMENT_S


@dataclass(frozen=True, slots=True)
class CrossSpectrum:
    """Hermitian matrices for each frequency; their weighted sum over frequencies is a covariance matrix."""

    total: NDArray[np.complex128]  # (frequency, share, share) of one thread
    shared: NDArray[np.complex128]  # (frequency, share, share) between two threads of one job


def estimate(jobs: Sequence[NDArray[np.float64]]) -> CrossSpectrum:
    """Welch's estimate over all jobs. Means are not removed: differences between jobs are part of the spectrum."""
    total = np.zeros((FREQUENCIES, 3, 3), np.complex128)
    between = np.zeros_like(total)
    segments, pairs = 0, 0
    for scores in jobs:
        if scores.shape[1] < SEGMENT_S:  # short jobs still contain their level and their high frequencies
            scores = np.pad(scores, ((0, 0), (0, SEGMENT_S - scores.shape[1]), (0, 0)), mode="reflect")
        tapered = sliding_window_view(scores, SEGMENT_S, axis=1)[:, ::_HOP_S] * _TAPER  # (thread, segment, share, 64)
        fourier = np.fft.rfft(tapered, axis=-1) / np.sqrt(_TAPER_POWER)  # (thread, segment, share, frequency)
        within = np.einsum("tsif,tsjf->fij", fourier, fourier.conj(), optimize=True)
        summed = fourier.sum(axis=0)
        total += within
        between += np.einsum("sif,sjf->fij", summed, summed.conj(), optimize=True) - within
        threads = len(scores)
        segments += threads * tapered.shape[1]
        pairs += threads * (threads - 1) * tapered.shape[1]
    return CrossSpectrum(total / max(segments, 1), between / max(pairs, 1))


def factor(matrices: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Lower triangular L with a real diagonal; L·Lᴴ are the nearest positive definite matrices."""
    values, vectors = np.linalg.eigh((matrices + matrices.conj().swapaxes(1, 2)) / 2)
    root = vectors * np.sqrt(np.clip(values, 1e-9, None))[:, None, :]
    _, upper = np.linalg.qr(root.conj().swapaxes(1, 2))  # root·rootᴴ = Rᴴ·R
    phase = np.einsum("fii->fi", upper)
    phase = np.where(np.abs(phase) > 0, phase / np.maximum(np.abs(phase), 1e-300), 1)
    lower: NDArray[np.complex128] = (upper * phase.conj()[:, :, None]).conj().swapaxes(1, 2)
    return lower


def product(lower: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """The inverse of `factor`: L·Lᴴ."""
    return lower @ lower.conj().swapaxes(1, 2)
