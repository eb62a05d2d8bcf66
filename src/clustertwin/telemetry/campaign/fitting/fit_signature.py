"""Fit a signature to recorded jobs: jobs of (thread, second, channel) ratios -> `Signature`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.campaign.fitting.job_excerpts import END_S, START_S, JobExcerpt
from clustertwin.telemetry.campaign.fitting.spectra import WEIGHTS, CrossSpectrum, estimate, factor, product
from clustertwin.telemetry.simulation.copula_process import draw_ticks, normal_score_ramp
from clustertwin.telemetry.simulation.signature import NORMAL_SCORES, SEGMENT_S, Signature
from clustertwin.telemetry.simulation.stick_breaking import ORDERS, TICKS, Order, to_shares

_CALIBRATION_ROUNDS = 6
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class NormalScores:
    """The normal-score transform of one share: value -> normal score; tied values get the score of their mid-rank."""

    values: NDArray[np.float64]
    scores: NDArray[np.float64]

    @classmethod
    def of(cls, sample: NDArray[np.float64]) -> NormalScores:
        finite = np.round(sample[np.isfinite(sample)], 3)
        if not len(finite):
            return cls(np.zeros(1), np.zeros(1))
        values, counts = np.unique(finite, return_counts=True)
        mid_ranks = (np.cumsum(counts) - counts / 2) / len(finite)
        return cls(values, np.array([_NORMAL.inv_cdf(p) for p in mid_ranks]))

    def transform(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Normal scores of shares; an undefined share gets 0, the median."""
        return np.where(np.isfinite(shares), np.interp(np.nan_to_num(shares), self.values, self.scores), 0.0)


def fit(
    excerpts: Sequence[JobExcerpt], seed: int = 0, *, grows: bool = False, orders: Sequence[Order] = ORDERS
) -> Signature:
    """The signature of one kind of thread, with the order of channels that reproduces the recording best.

    With `grows`, a trend over the job is fitted. Otherwise slopes are treated as slow noise.
    """
    kinds = {(excerpt.job_type, excerpt.anomaly) for excerpt in excerpts}
    if len(kinds) != 1:
        raise SettingsError(f"a signature needs recorded jobs of one kind, got {sorted(kinds)}")
    candidates = [_fit_in_order(excerpts, order, grows, seed) for order in orders]
    recorded = _shape([excerpt.body() for excerpt in excerpts])
    return min(candidates, key=lambda signature: _misfit(recorded, signature, seed))


def _fit_in_order(excerpts: Sequence[JobExcerpt], order: Order, grows: bool, seed: int) -> Signature:
    shares = [to_shares(excerpt.body(), order) for excerpt in excerpts]
    pooled = np.concatenate([part.reshape(-1, 3) for part in shares])
    transforms = [NormalScores.of(pooled[:, i]) for i in range(3)]
    scores = [_scores(part, transforms) for part in shares]
    trend = _slope(scores) if grows else np.zeros(3)
    target = estimate(_detrend(scores, trend))
    shared, own = _factors(target, trend)
    ratios = [excerpt.ratios for excerpt in excerpts]
    uncalibrated = Signature(
        job_type=excerpts[0].job_type,
        anomaly=excerpts[0].anomaly,
        order=order,
        quantiles=np.stack([_quantiles(pooled[:, i]) for i in range(3)]),
        shared=shared,
        own=own,
        trend=trend,
        start=_edge([excerpt.ratios[:, :START_S] for excerpt in excerpts if excerpt.starts]),
        end=_edge([excerpt.ratios[:, -END_S:] for excerpt in excerpts if excerpt.ends]),
        jobs=len(excerpts),
        thread_s=sum(int(np.isfinite(job[..., 0]).sum()) for job in ratios),
    )
    return _calibrate(uncalibrated, target, transforms, max(len(job) for job in ratios), seed)


def _shape(jobs: Sequence[NDArray[np.floating]]) -> NDArray[np.float64]:
    """Quantiles of every channel, of its difference between seconds and of its difference between threads."""
    levels = np.linspace(0.005, 0.995, 199)
    columns = []
    values_and_differences: list[Callable[[Any], Any]] = [
        lambda x: x,
        lambda x: np.diff(x, axis=1),
        lambda x: x[1:] - x[:1],
    ]
    for part in values_and_differences:
        pooled = np.concatenate([part(job).reshape(-1, 4) for job in jobs])
        columns.append(np.nanquantile(pooled, levels, axis=0) if len(pooled) else np.full((len(levels), 4), np.nan))
    return np.concatenate(columns, axis=1)  # (level, 12)


def _misfit(recorded: NDArray[np.float64], signature: Signature, seed: int) -> float:
    """The mean distance between the recorded and the simulated quantiles."""
    rng = np.random.default_rng((seed, _CALIBRATION_ROUNDS))
    drawn = [draw_ticks(signature, 2, 2 * SEGMENT_S, rng) / TICKS for _ in range(24)]
    return float(np.nanmean(np.abs(recorded - _shape(drawn))))  # NaN: a job of one thread has no other threads


def _calibrate(
    signature: Signature, target: CrossSpectrum, transforms: list[NormalScores], threads: int, seed: int
) -> Signature:
    """Adjust the latent spectrum until simulated seconds, rounded to ticks, have the recorded spectrum.

    Rounding to ticks and ties whiten a series. With the recorded spectrum itself, simulated series would be too white.
    """
    latent = target
    for iteration in range(_CALIBRATION_ROUNDS):
        rng = np.random.default_rng((seed, iteration))
        drawn = [draw_ticks(signature, min(threads, 4), 4 * SEGMENT_S, rng) / TICKS for _ in range(24)]
        scores = [_scores(to_shares(ratios, signature.order), transforms) for ratios in drawn]
        simulated = estimate(_detrend(scores, signature.trend))
        latent = CrossSpectrum(
            _towards(latent.total, target.total, simulated.total),
            _towards(latent.shared, target.shared, simulated.shared),
        )
        shared, own = _factors(latent, signature.trend)
        signature = replace(signature, shared=shared, own=own)
    return signature


def _towards(
    latent: NDArray[np.complex128], target: NDArray[np.complex128], simulated: NDArray[np.complex128]
) -> NDArray[np.complex128]:
    """Scale the rows and columns of each matrix by the ratio of the target and the simulated diagonal."""
    target_power, power = (np.einsum("fii->fi", matrix).real for matrix in (target, simulated))
    floor = 1e-3
    ratio = np.clip(np.maximum(target_power, floor) / np.maximum(power, floor), 0.6, 1.6) ** 0.5
    return latent * ratio[:, :, None] * ratio[:, None, :]


def _factors(
    spectrum: CrossSpectrum, trend: NDArray[np.float64]
) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """Spectral factors, shared and own, of a series that has unit variance after the trend is added."""
    shared = product(factor(spectrum.shared))
    own = product(factor(spectrum.total - shared))
    variance = np.einsum("f,fii->i", WEIGHTS, shared + own).real
    target_variance = np.clip(1 - trend**2, 1e-3, 1)
    # A constant share has no spectrum. It gets a white one; its quantiles are all equal, so it stays constant.
    constant = variance < 1e-6
    scale = np.where(constant, 0.0, np.sqrt(target_variance / np.where(constant, 1.0, variance)))
    own = own * np.outer(scale, scale) + np.diag(constant.astype(float))
    return factor(shared * np.outer(scale, scale)), factor(own)


def _scores(shares: NDArray[np.float64], transforms: list[NormalScores]) -> NDArray[np.float64]:
    return np.stack([transform.transform(shares[..., i]) for i, transform in enumerate(transforms)], axis=-1)


def _slope(jobs: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Regression slope of the scores on a ramp through the job: 1 sorts the values, 0 is no trend."""
    ramps = [normal_score_ramp(job.shape[1])[None, :, None] for job in jobs]
    slopes = [(job * ramp).mean((0, 1)) / (ramp**2).mean() for job, ramp in zip(jobs, ramps, strict=True)]
    return np.clip(np.mean(slopes, axis=0), -1, 1)


def _detrend(jobs: list[NDArray[np.float64]], trend: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    return [job - normal_score_ramp(job.shape[1])[None, :, None] * trend for job in jobs]


def _quantiles(sample: NDArray[np.float64]) -> NDArray[np.float64]:
    """The share at each of NORMAL_SCORES, without interpolation between ticks."""
    finite = sample[np.isfinite(sample)]
    if not len(finite):
        return np.zeros(len(NORMAL_SCORES))
    return np.quantile(finite, [_NORMAL.cdf(z) for z in NORMAL_SCORES], method="inverted_cdf")


def _edge(parts: list[NDArray[np.float32]]) -> NDArray[np.float64]:
    """Mean ratios per second over all threads of all jobs; empty if no edge was recorded."""
    if not parts:
        return np.empty((0, 4))
    shortest = min(part.shape[1] for part in parts)
    rows = np.concatenate([part[:, :shortest] for part in parts]).astype(np.float64)
    rows = rows[np.isfinite(rows).all(axis=(1, 2))]
    return rows.mean(axis=0) if len(rows) else np.empty((0, 4))
