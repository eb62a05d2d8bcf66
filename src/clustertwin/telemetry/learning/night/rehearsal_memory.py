"""What is remembered of earlier days: a few moments of each -> a bounded memory that any past day may be in.

When the memory is full one day leaves it by lot, so that old days fade and do not end. The lot is drawn from the new
day's name: a night that is repeated forgets the same.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clustertwin.telemetry.learning.night.night_data import Material
from clustertwin.telemetry.moments.moment import Moment
from clustertwin.telemetry.moments.moment_files import write_moments


def remember(directory: Path, day: str, material: Material, moments: int, days: int) -> None:
    """Add a day; at most `days` days with `moments` moments of each role stay."""
    if not moments or not days:
        return
    mine = directory / day
    for role in ("train", "validation"):
        write_moments(mine / f"{role}.safetensors", spread(getattr(material, role), moments))
    names = sorted(path.name for path in directory.iterdir())
    if len(names) > days:
        rng = np.random.default_rng(int.from_bytes(hashlib.sha256(day.encode()).digest()[:8]))
        shutil.rmtree(directory / names[int(rng.integers(len(names)))])


def remembered(directory: Path, before: str) -> list[Path]:
    """The days in memory, oldest first, without `before` and what came after: a repeated night sees no future."""
    if not directory.is_dir():
        return []
    return [path for path in sorted(directory.iterdir()) if path.name < before]


def forget(directory: Path, days: Sequence[str]) -> list[str]:
    """Remove days from the memory; says which were there."""
    there = [day for day in days if (directory / day).is_dir()]
    for day in there:
        shutil.rmtree(directory / day)
    return [f"{day} is forgotten: an anomaly of it was confirmed since" for day in there]


def spread(taken: tuple[Moment, ...], count: int) -> tuple[Moment, ...]:
    """So many, evenly chosen."""
    if len(taken) <= count:
        return taken
    return tuple(taken[i] for i in np.linspace(0, len(taken) - 1, count).round().astype(int))
