"""Fit what MPI ranks' seconds look like: recorded mpi-N jobs and the program's step -> `Barrier`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clustertwin.telemetry.campaign.fitting.recorded_bouts import Bout
from clustertwin.telemetry.simulation.barrier import Barrier, wait_shares

_USER = 0


def fit_barrier(bouts: Sequence[Bout], step_s: tuple[float, float], seed: int = 0) -> Barrier:
    """Straight lines, one per channel, from a second's part of waiting to its recorded ratios.

    Nobody recorded when a rank waited, but how often it waits how long follows from the step: the recorded
    seconds, ordered by their user time, are paired with simulated waits in order of size.
    """
    rng = np.random.default_rng(seed)
    waits, ratios = [], []
    for bout in bouts:
        body = bout.body().reshape(-1, 4)
        body = body[np.isfinite(body).all(axis=1)].astype(np.float64)
        simulated = wait_shares(step_s, np.ones(len(bout.ratios)), 4096, rng).ravel()
        waits.append(np.quantile(simulated, (np.arange(len(body)) + 0.5) / len(body)))
        ratios.append(body[np.argsort(-body[:, _USER], kind="stable")])
    wait, seen = np.concatenate(waits), np.concatenate(ratios)  # (n,), (n, channel)
    design = np.stack([1 - wait, wait], axis=1)
    compute, waiting = np.clip(np.linalg.lstsq(design, seen, rcond=None)[0], 0, 1)
    return Barrier(step_s, compute / compute.sum(), waiting / waiting.sum())
