"""Synthetic jobs against the jobs they were learnt from -> how close they come, beside how close real strangers come.

The yardstick is a hold-out: one half of the real log (interleaved blocks) measured against the other. Distances shrink
as there is more to be close to, so synthetic jobs are measured against the same half; copies are sought in all of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require
from clustertwin.workload.fidelity.sample import Sample

Floats = NDArray[np.float64]

BLOCK_JOBS = 250


@dataclass(frozen=True, slots=True)
class Privacy:
    """A job is a copy if everything but its arrival is the same as some real job's."""

    copy_rate: float
    copy_rate_holdout: float
    closest_median: float  # distance to the closest record, in standard deviations of the logs
    closest_median_holdout: float
    closest_5th: float
    closest_5th_holdout: float


def copy_rate(real: Floats, synthetic: Floats) -> float:
    """The share of rows that occur in `real`, digit by digit."""
    known = {row.tobytes() for row in np.ascontiguousarray(real) + 0.0}  # + 0.0: no negative zeros
    return float(np.mean([row.tobytes() in known for row in np.ascontiguousarray(synthetic) + 0.0]))


def closest(real: Floats, synthetic: Floats) -> Floats:
    """The distance of each synthetic row to its closest real one."""
    tree = require("scipy.spatial", "models").cKDTree(real)
    return np.asarray(tree.query(synthetic)[0])


def privacy(real: Sample, synthetic: Sample, names: tuple[str, ...]) -> Privacy:
    """Copies and close calls, and the same of the hold-out."""
    a, b = real.table(names), synthetic.table(names)
    kept = [i for i, name in enumerate(names) if name != "interval"]
    block = min(BLOCK_JOBS, max(1, len(a) // 2))
    train = (np.arange(len(a)) // block) % 2 == 0
    logs_a, logs_b = np.log1p(np.maximum(a, 0)), np.log1p(np.maximum(b, 0))
    spread = logs_a.std(axis=0)
    logs_a, logs_b = logs_a / np.where(spread > 0, spread, 1), logs_b / np.where(spread > 0, spread, 1)
    near, near_holdout = closest(logs_a[train], logs_b), closest(logs_a[train], logs_a[~train])
    return Privacy(
        copy_rate(a[:, kept], b[:, kept]), copy_rate(a[train][:, kept], a[~train][:, kept]),
        float(np.median(near)), float(np.median(near_holdout)),
        float(np.quantile(near, 0.05)), float(np.quantile(near_holdout, 0.05)),
    )  # fmt: skip
