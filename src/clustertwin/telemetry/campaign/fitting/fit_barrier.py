"""Fit the ratios of computing and waiting MPI ranks: recorded mpi-N jobs and the program's step -> `Barrier`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clustertwin.telemetry.campaign.fitting.job_excerpts import JobExcerpt
from clustertwin.telemetry.simulation.barrier import Barrier, wait_fractions

_USER = 0


def fit_barrier(excerpts: Sequence[JobExcerpt], step_s: tuple[float, float], seed: int = 0) -> Barrier:
    """Linear regression of the recorded ratios on the fraction of each second that a rank waits.

    The fraction was not recorded, but its distribution follows from the step: recorded seconds, sorted by user time,
    are paired with the quantiles of simulated waits.
    """
    rng = np.random.default_rng(seed)
    waits, ratios = [], []
    for excerpt in excerpts:
        body = excerpt.body().reshape(-1, 4)
        body = body[np.isfinite(body).all(axis=1)].astype(np.float64)
        simulated = wait_fractions(step_s, np.ones(len(excerpt.ratios)), 4096, rng).ravel()
        waits.append(np.quantile(simulated, (np.arange(len(body)) + 0.5) / len(body)))
        ratios.append(body[np.argsort(-body[:, _USER], kind="stable")])
    wait, recorded = np.concatenate(waits), np.concatenate(ratios)  # (n,), (n, channel)
    design = np.stack([1 - wait, wait], axis=1)
    compute, waiting = np.clip(np.linalg.lstsq(design, recorded, rcond=None)[0], 0, 1)
    return Barrier(step_s, compute / compute.sum(), waiting / waiting.sum())
