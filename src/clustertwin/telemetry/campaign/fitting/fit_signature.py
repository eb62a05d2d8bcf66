"""Fit a signature to recorded jobs: jobs of (thread, second, channel) ratios -> `Signature`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.campaign.fitting.recorded_bouts import END_S, START_S, Bout
from clustertwin.telemetry.campaign.fitting.spectra import WEIGHTS, Spectrum, estimate, factor, product
from clustertwin.telemetry.simulation.process import climb, draw
from clustertwin.telemetry.simulation.shares import ORDERS, TICKS, Order, to_shares
from clustertwin.telemetry.simulation.signature import SCORES, SEGMENT_S, Signature

_CALIBRATION_ROUNDS = 6
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Scale:
    """One share's recorded distribution, as value -> normal score; ties get the score in their middle."""

    values: NDArray[np.float64]
    scores: NDArray[np.float64]

    @classmethod
    def of(cls, sample: NDArray[np.float64]) -> Scale:
        known = np.round(sample[np.isfinite(sample)], 3)
        if not len(known):
            return cls(np.zeros(1), np.zeros(1))
        values, counts = np.unique(known, return_counts=True)
        middle = (np.cumsum(counts) - counts / 2) / len(known)
        return cls(values, np.array([_NORMAL.inv_cdf(p) for p in middle]))

    def score(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """A share that could not be measured gets the neutral score."""
        return np.where(np.isfinite(shares), np.interp(np.nan_to_num(shares), self.values, self.scores), 0.0)


def fit(bouts: Sequence[Bout], seed: int = 0, *, grows: bool = False, orders: Sequence[Order] = ORDERS) -> Signature:
    """The signature of one kind of thread from every recorded bout of it, in the order of channels that draws best.

    `grows` looks for a trend over the job; without it, a slope is taken for what it mostly is: slow noise.
    """
    kinds = {(bout.job_type, bout.anomaly) for bout in bouts}
    if len(kinds) != 1:
        raise SettingsError(f"a signature needs recorded jobs of one kind, got {sorted(kinds)}")
    candidates = [_fit_in_order(bouts, order, grows, seed) for order in orders]
    recorded = _shape([bout.body() for bout in bouts])
    return min(candidates, key=lambda signature: _misfit(recorded, signature, seed))


def _fit_in_order(bouts: Sequence[Bout], order: Order, grows: bool, seed: int) -> Signature:
    shares = [to_shares(bout.body(), order) for bout in bouts]
    pooled = np.concatenate([part.reshape(-1, 3) for part in shares])
    scales = [Scale.of(pooled[:, i]) for i in range(3)]
    scored = [_scores(part, scales) for part in shares]
    trend = _slope(scored) if grows else np.zeros(3)
    residuals = _detrend(scored, trend)
    target = estimate(residuals)
    shared, own = _factors(target, trend)
    every = [bout.ratios for bout in bouts]
    first = Signature(
        job_type=bouts[0].job_type,
        anomaly=bouts[0].anomaly,
        order=order,
        quantiles=np.stack([_quantiles(pooled[:, i]) for i in range(3)]),
        shared=shared,
        own=own,
        trend=trend,
        start=_edge([bout.ratios[:, :START_S] for bout in bouts if bout.starts]),
        end=_edge([bout.ratios[:, -END_S:] for bout in bouts if bout.ends]),
        jobs=len(bouts),
        thread_s=sum(int(np.isfinite(ratios[..., 0]).sum()) for ratios in every),
    )
    return _calibrate(first, target, scales, max(len(ratios) for ratios in every), seed)


def _shape(jobs: Sequence[NDArray[np.floating]]) -> NDArray[np.float64]:
    """Quantiles of every channel, of its change from second to second and of its distance from other threads."""
    levels = np.linspace(0.005, 0.995, 199)
    columns = []
    views: list[Callable[[Any], Any]] = [lambda x: x, lambda x: np.diff(x, axis=1), lambda x: x[1:] - x[:1]]
    for view in views:
        pooled = np.concatenate([view(job).reshape(-1, 4) for job in jobs])
        columns.append(np.nanquantile(pooled, levels, axis=0) if len(pooled) else np.full((len(levels), 4), np.nan))
    return np.concatenate(columns, axis=1)  # (level, 12)


def _misfit(recorded: NDArray[np.float64], signature: Signature, seed: int) -> float:
    """The mean distance between the recorded shape and the drawn one."""
    rng = np.random.default_rng((seed, _CALIBRATION_ROUNDS))
    drawn = [draw(signature, 2, 2 * SEGMENT_S, rng) / TICKS for _ in range(24)]
    return float(np.nanmean(np.abs(recorded - _shape(drawn))))  # a lone thread has no distance from others


def _calibrate(first: Signature, target: Spectrum, scales: list[Scale], threads: int, seed: int) -> Signature:
    """Adjust the latent spectrum until the spectrum of what it draws, ticks and all, is the recorded one.

    Rounding to ticks and ties whiten a series: drawing from the recorded spectrum itself gives too flat a one.
    """
    signature, latent = first, target
    for round_ in range(_CALIBRATION_ROUNDS):
        rng = np.random.default_rng((seed, round_))
        drawn = [draw(signature, min(threads, 4), 4 * SEGMENT_S, rng) / TICKS for _ in range(24)]
        residuals = _detrend([_scores(to_shares(ratios, signature.order), scales) for ratios in drawn], signature.trend)
        got = estimate(residuals)
        latent = Spectrum(
            _towards(latent.total, target.total, got.total), _towards(latent.shared, target.shared, got.shared)
        )
        shared, own = _factors(latent, signature.trend)
        signature = replace(signature, shared=shared, own=own)
    return signature


def _towards(
    latent: NDArray[np.complex128], target: NDArray[np.complex128], got: NDArray[np.complex128]
) -> NDArray[np.complex128]:
    """Scale rows and columns of each matrix by how far its diagonal is off."""
    wanted, have = (np.einsum("fii->fi", matrix).real for matrix in (target, got))
    floor = 1e-3
    ratio = np.clip(np.maximum(wanted, floor) / np.maximum(have, floor), 0.6, 1.6) ** 0.5
    return latent * ratio[:, :, None] * ratio[:, None, :]


def _factors(spectrum: Spectrum, trend: NDArray[np.float64]) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """Spectral factors, shared and own, whose series has unit variance once the trend is added."""
    shared = product(factor(spectrum.shared))
    own = product(factor(spectrum.total - shared))
    variance = np.einsum("f,fii->i", WEIGHTS, shared + own).real
    wanted = np.clip(1 - trend**2, 1e-3, 1)
    # A share that never changes has no spectrum; it gets a flat one that its quantiles make constant.
    flat = variance < 1e-6
    scale = np.where(flat, 0.0, np.sqrt(wanted / np.where(flat, 1.0, variance)))
    own = own * np.outer(scale, scale) + np.diag(flat.astype(float))
    return factor(shared * np.outer(scale, scale)), factor(own)


def _scores(shares: NDArray[np.float64], scales: list[Scale]) -> NDArray[np.float64]:
    return np.stack([scale.score(shares[..., i]) for i, scale in enumerate(scales)], axis=-1)


def _slope(jobs: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """How far the scores climb through a job: 1 is in perfect order, 0 not at all."""
    ramps = [climb(job.shape[1])[None, :, None] for job in jobs]
    slopes = [(job * ramp).mean((0, 1)) / (ramp**2).mean() for job, ramp in zip(jobs, ramps, strict=True)]
    return np.clip(np.mean(slopes, axis=0), -1, 1)


def _detrend(jobs: list[NDArray[np.float64]], trend: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    return [job - climb(job.shape[1])[None, :, None] * trend for job in jobs]


def _quantiles(sample: NDArray[np.float64]) -> NDArray[np.float64]:
    """The share at each of SCORES; ticks stay ticks."""
    known = sample[np.isfinite(sample)]
    if not len(known):
        return np.zeros(len(SCORES))
    return np.quantile(known, [_NORMAL.cdf(z) for z in SCORES], method="inverted_cdf")


def _edge(parts: list[NDArray[np.float32]]) -> NDArray[np.float64]:
    """Mean ratios per second over every thread of every job; empty where no edge was recorded."""
    if not parts:
        return np.empty((0, 4))
    shortest = min(part.shape[1] for part in parts)
    rows = np.concatenate([part[:, :shortest] for part in parts]).astype(np.float64)
    rows = rows[np.isfinite(rows).all(axis=(1, 2))]
    return rows.mean(axis=0) if len(rows) else np.empty((0, 4))
