"""Moments -> the windows that models train on: (n, 100, channel), one per settled and mostly valid thread."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.traces import Windows
from clustertwin.telemetry.moments.moment import WINDOW_S, Moment

_LEAST_VALID = 0.8  # part of a window's seconds that must be valid


def training_windows(moments: Sequence[Moment]) -> Windows:
    """The last window of every usable thread of every moment."""
    return Windows.concat([_windows(moment) for moment in moments])


def usable_threads(moment: Moment) -> NDArray[np.bool_]:
    """(thread,) settled, and with enough valid seconds in the last window."""
    usable: NDArray[np.bool_] = moment.settled & (moment.windows(WINDOW_S)[1].mean(1) >= _LEAST_VALID)
    return usable


def subsample(windows: Windows, limit: int, seed: int) -> Windows:
    """At most `limit` windows. All windows of a node at one moment stay together, because graph models need them."""
    if len(windows) <= limit:
        return windows
    _, group = np.unique(np.rec.fromarrays([windows.node, windows.start_s]), return_inverse=True)
    order = np.random.default_rng(seed).permutation(group.max() + 1)
    sizes = np.bincount(group)[order]
    chosen = order[: max(1, int(np.searchsorted(sizes.cumsum(), limit, side="right")))]
    return windows.take(np.flatnonzero(np.isin(group, chosen)))


def _windows(moment: Moment) -> Windows:
    values, valid = moment.windows(WINDOW_S)
    rows = np.flatnonzero(usable_threads(moment))
    empty = np.full(len(rows), "")
    return Windows(
        schema=moment.schema,
        values=values[rows],
        valid=valid[rows],
        start_s=np.full(len(rows), moment.end_s - WINDOW_S, np.int64),
        node=np.array(moment.nodes)[moment.node[rows]],
        cpu=moment.cpu[rows],
        job=np.array([*moment.jobs, ""])[moment.job[rows]],  # -1, no job, selects the last entry
        job_type=empty,
        anomaly=empty,
        campaign=empty,
        split=empty,
    )
