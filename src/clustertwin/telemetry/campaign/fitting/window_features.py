"""Features of windows: (n, second, channel) -> (n, feature); moments, quantiles, autocorrelation and spectrum."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

LAGS = (1, 2, 5)
BANDS_HZ = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.51)


def features(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Eighteen features per channel, for a classifier that separates simulated from recorded windows."""
    x = np.asarray(values, np.float64)
    mean = x.mean(axis=1)  # (n, channel)
    centred = x - mean[:, None]
    deviation = centred.std(axis=1)
    safe = np.maximum(deviation, 1e-3)
    columns = [mean, deviation, np.abs(np.diff(x, axis=1)).mean(axis=1), (x == 0).mean(axis=1)]
    columns += list(np.quantile(x, (0.0, 0.1, 0.5, 0.9, 1.0), axis=1))
    columns += [(centred[:, lag:] * centred[:, :-lag]).mean(axis=1) / safe**2 for lag in LAGS]
    power = power_spectrum(x)
    hz = np.fft.rfftfreq(x.shape[1])
    for low, high in pairwise(BANDS_HZ):
        band = (hz >= low) & (hz < high)
        if band.any():  # short windows do not resolve the lowest bands
            columns.append(np.log10(power[:, band].mean(axis=1) + 1e-7))
    return np.concatenate(columns, axis=1)


def power_spectrum(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """The power spectrum of each window: (n, second, channel) -> (n, frequency, channel)."""
    centred = values - values.mean(axis=1, keepdims=True)
    taper = np.hanning(values.shape[1])[None, :, None]
    return np.abs(np.fft.rfft(centred * taper, axis=1)) ** 2 / float((taper**2).sum())
