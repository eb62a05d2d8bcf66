"""The rehearsal memory: a few moments of each earlier day -> home/rehearsal/<day>/, with a bounded number of days.

Challengers train on its moments of the roles train and validation. On those of the role held_out, which nothing is ever
trained on, the golden set of the site imposes its faults.

When the memory is full, one randomly chosen day is removed, so that old days become rarer but can stay. The random
number depends only on the new day's name: a repeated night removes the same day.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clustertwin.telemetry.learning.night.day_sampling import ROLES, DaySplit
from clustertwin.telemetry.moments.moment import Moment
from clustertwin.telemetry.moments.moment_files import write_moments


def add_day(directory: Path, day: str, split: DaySplit, moments: int, days: int) -> None:
    """Store at most `moments` moments of each role of a day, and keep at most `days` days."""
    if not moments or not days:
        return
    for role in ROLES:
        write_moments(directory / day / f"{role}.safetensors", evenly_spaced(getattr(split, role), moments))
    stored = _days(directory)
    if len(stored) > days:
        rng = np.random.default_rng(int.from_bytes(hashlib.sha256(day.encode()).digest()[:8]))
        shutil.rmtree(stored[int(rng.integers(len(stored)))])


def days_before(directory: Path, day: str) -> list[Path]:
    """The stored days before this one, oldest first: a repeated night must not use later days."""
    return [path for path in _days(directory) if path.name < day]


def _days(directory: Path) -> list[Path]:
    """The stored days, oldest first."""
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if any(path.glob("*.safetensors")))


def remove_days(directory: Path, days: Sequence[str]) -> list[str]:
    """Remove days and return a note for each day that was stored."""
    stored = [day for day in days if (directory / day).is_dir()]
    for day in stored:
        shutil.rmtree(directory / day)
    return [f"{day} is removed from the rehearsal memory: an anomaly on it was confirmed later" for day in stored]


def evenly_spaced(moments: tuple[Moment, ...], count: int) -> tuple[Moment, ...]:
    """At most `count` moments, evenly spaced."""
    if len(moments) <= count:
        return moments
    return tuple(moments[i] for i in np.linspace(0, len(moments) - 1, count).round().astype(int))
