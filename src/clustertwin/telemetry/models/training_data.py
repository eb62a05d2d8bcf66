"""Recordings -> training windows: the normal ones, split into training, validation and test without leakage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import Windows
from clustertwin.telemetry.recording import Recording, find

SPLITS = ("train", "validation", "test")


def read_windows(roots: Sequence[Path], length_s: int = 100, stride_s: int | None = None) -> Windows:
    """Every window of every recording below these directories."""
    directories = [directory for root in roots for directory in find(root)]
    if not directories:
        raise SettingsError(f"no recordings below {', '.join(map(str, roots))}; make one with `twin record`")
    return Windows.concat([Recording.open(directory).windows(length_s, stride_s) for directory in directories])


def normal_windows(windows: Windows) -> Windows:
    """The windows without an anomaly, without the start or end of a job, and without masked seconds."""
    return windows.take((windows.anomaly == "") & (windows.job_type != "mixed") & windows.valid.all(axis=1))


def split_windows(windows: Windows, held_out: float = 0.2) -> dict[str, Windows]:
    """Split by campaign; windows without a campaign are split by time, the last part for validation.

    Windows that overlap the cut are dropped, so that no second is on both sides.
    """
    parts = {name: windows.split == name for name in SPLITS}
    without_split = ~np.isin(windows.split, SPLITS)
    if without_split.any():
        length_s = windows.values.shape[1] * windows.interval_s
        starts_s = windows.start_s[without_split]
        cut_s = np.quantile(starts_s, 1 - held_out, method="lower")
        parts["train"] |= without_split & (windows.start_s + length_s <= cut_s)
        parts["validation"] |= without_split & (windows.start_s >= cut_s)
    return {name: windows.take(np.flatnonzero(rows)) for name, rows in parts.items()}
