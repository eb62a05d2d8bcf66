"""Recordings -> the windows to learn from: normal ones, split into training, validation and test without leakage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import Windows
from clustertwin.telemetry.recording import Recording, find

SPLITS = ("train", "validation", "test")


def gather(data: Sequence[Path], length_s: int = 100, stride_s: int | None = None) -> Windows:
    """Every window of every recording below these directories."""
    found = [directory for root in data for directory in find(root)]
    if not found:
        raise SettingsError(f"no recordings below {', '.join(map(str, data))}; make one with `twin record`")
    return Windows.concat([Recording.open(directory).windows(length_s, stride_s) for directory in found])


def normal(windows: Windows) -> Windows:
    """Those that a model should find normal: no anomaly, no job's edge inside, nothing masked."""
    return windows.take((windows.anomaly == "") & (windows.job_type != "mixed") & windows.valid.all(axis=1))


def split(windows: Windows, held_out: float = 0.2) -> dict[str, Windows]:
    """By the campaigns' own splits; windows without one by time, the last part held out for validation.

    Windows that would overlap the cut are left out, so that no second is on both sides.
    """
    parts = {name: windows.split == name for name in SPLITS}
    loose = ~np.isin(windows.split, SPLITS)
    if loose.any():
        length_s = windows.values.shape[1] * windows.interval_s
        starts_s = windows.start_s[loose]
        cut_s = np.quantile(starts_s, 1 - held_out, method="lower")
        parts["train"] |= loose & (windows.start_s + length_s <= cut_s)
        parts["validation"] |= loose & (windows.start_s >= cut_s)
    return {name: windows.take(np.flatnonzero(which)) for name, which in parts.items()}
