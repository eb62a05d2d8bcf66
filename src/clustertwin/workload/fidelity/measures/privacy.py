"""How close synthetic jobs come to real jobs, next to the same numbers for a real hold-out.

The hold-out is one half of the real log (interleaved blocks), compared with the other half. Distances to the closest
record shrink as the reference grows, so synthetic jobs are compared with the same half. Copies are counted against the
complete real log. Of a large log, only some jobs are asked about (`judged_sample`), but always against all real jobs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require
from clustertwin.workload.fidelity.measures.compared_log import ComparedLog
from clustertwin.workload.fidelity.measures.judged_sample import MOST_JUDGED_JOBS, judged_rows

Floats = NDArray[np.float64]

BLOCK_JOBS = 250


@dataclass(frozen=True, slots=True)
class Privacy:
    """A synthetic job is a copy if some real job equals it in every compared column except the arrival."""

    copy_rate: float
    copy_rate_holdout: float
    closest_median: float  # distance to the closest record, in standard deviations of log(1 + x)
    closest_median_holdout: float
    closest_5th: float
    closest_5th_holdout: float


def copy_rate(real: Floats, synthetic: Floats) -> float:
    """The share of synthetic rows that occur in `real` exactly."""
    asked = [row.tobytes() for row in np.ascontiguousarray(synthetic) + 0.0]  # + 0.0 turns -0.0 into 0.0
    # The set holds what is asked, not the real log, which may be much longer.
    wanted = set(asked)
    known = {row for row in (row.tobytes() for row in np.ascontiguousarray(real) + 0.0) if row in wanted}
    return float(np.mean([row in known for row in asked]))


def closest(real: Floats, synthetic: Floats) -> Floats:
    """The distance of each synthetic row to the closest real row."""
    tree = require("scipy.spatial", "models").cKDTree(real)
    return np.asarray(tree.query(synthetic)[0])


def privacy(real: ComparedLog, synthetic: ComparedLog, names: tuple[str, ...], seed: int = 0) -> Privacy:
    """Copy rate and distances to the closest record, for the synthetic log and for the hold-out."""
    a, b = real.table(names), judged_rows(synthetic.table(names), MOST_JUDGED_JOBS, seed)
    kept = [i for i, name in enumerate(names) if name != "interval"]
    block = min(BLOCK_JOBS, max(1, len(a) // 2))
    train = (np.arange(len(a)) // block) % 2 == 0
    logs_a, logs_b = np.log1p(np.maximum(a, 0)), np.log1p(np.maximum(b, 0))
    spread = logs_a.std(axis=0)
    logs_a, logs_b = logs_a / np.where(spread > 0, spread, 1), logs_b / np.where(spread > 0, spread, 1)
    held_out, held_out_logs = (judged_rows(table[~train], MOST_JUDGED_JOBS, seed) for table in (a[:, kept], logs_a))
    near, near_holdout = closest(logs_a[train], logs_b), closest(logs_a[train], held_out_logs)
    return Privacy(
        copy_rate(a[:, kept], b[:, kept]), copy_rate(a[train][:, kept], held_out),
        float(np.median(near)), float(np.median(near_holdout)),
        float(np.quantile(near, 0.05)), float(np.quantile(near_holdout, 0.05)),
    )  # fmt: skip
