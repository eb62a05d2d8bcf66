"""A month that was lived, day by day -> one row for each strategy of learning, and a picture of all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from clustertwin.core import files
from clustertwin.core.extras import require


@dataclass(frozen=True, slots=True)
class Lived:
    """One day under one strategy."""

    day: int
    new: bool  # something came that no day before had: kinds of jobs, hardware
    error: float  # on what was truly normal
    false_events: float  # a node and day
    jobs_wrong: int  # for long enough to be looked for
    jobs_found: int  # … of which an event told
    creep: float  # how much longer than a sound disk's the first node's waits took
    disk_events: int  # that told of it
    disk_sight: float  # of who waits for the disk at its worst, the part that alarms: 0 if the failure was learned
    golden: float  # sight on the golden set: mean recall less false alarms
    first_error: float  # on the first day's held-out moments: what is forgotten shows here
    outcome: str = ""
    training_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """A month in one line."""

    strategy: str
    error: float
    false_events: float  # a node and day, over the whole month
    false_usual: float  # … over the days that brought nothing new
    found: float  # of the jobs gone wrong
    disk_days: float  # from the failing disk's first day to the first event that told of it; NaN: none did
    disk_sight: float  # on the worst day: 0 if a champion ever took the failure for normal
    golden: float  # mean over the days …
    golden_worst: float  # … and on the worst: one blind day is enough to miss what happens on it
    forgetting: float  # the last first_error over the first
    promoted: int
    halted: int
    training_h: float


def summarise(strategy: str, days: Sequence[Lived]) -> Row:
    """The month's row; a mean of nothing is NaN."""
    wrong = sum(day.jobs_wrong for day in days)
    failing = [day.day for day in days if day.creep]
    told = [day.day for day in days if day.disk_events]
    return Row(
        strategy,
        error=mean([day.error for day in days]),
        false_events=mean([day.false_events for day in days]),
        false_usual=mean([day.false_events for day in days if not day.new]),
        found=sum(day.jobs_found for day in days) / wrong if wrong else float("nan"),
        disk_days=float(told[0] - failing[0]) if told else float("nan"),
        disk_sight=min(day.disk_sight for day in days),
        golden=mean([day.golden for day in days]),
        golden_worst=min(day.golden for day in days),
        forgetting=days[-1].first_error / days[0].first_error,
        promoted=sum(day.outcome == "promoted" for day in days),
        halted=sum(day.outcome == "halted" for day in days),
        training_h=sum(day.training_s for day in days) / 3600,
    )


def write_days(path: Path, days: Sequence[Lived]) -> None:
    files.make_directory(path.parent)
    files.write(path, json.dumps([asdict(day) for day in days], indent=1).encode())


def read_days(path: Path) -> list[Lived]:
    return [Lived(**row) for row in json.loads(path.read_text())]


def draw(months: Mapping[str, Sequence[Lived]], path: Path) -> None:
    """False events, what is forgotten and what is seen of the golden set; a dotted line where something new came."""
    figure = require("matplotlib.figure", "plots").Figure(figsize=(9, 8), layout="constrained")
    panels = figure.subplots(3, 1, sharex=True)
    for strategy, days in months.items():
        numbers = [day.day for day in days]
        lines = (
            [day.false_events for day in days],
            [day.first_error / days[0].first_error for day in days],
            [day.golden for day in days],
        )
        for axes, values in zip(panels, lines, strict=True):
            axes.plot(numbers, values, label=strategy, linewidth=1.2)
    for axes in panels:
        for day in (day for day in next(iter(months.values())) if day.new):
            axes.axvline(day.day, color="grey", linestyle=":", linewidth=0.8)
    panels[0].set_yscale("symlog", linthresh=1)
    panels[0].set_ylim(bottom=0)
    panels[0].set_ylabel("false events a node-day")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", frameon=False, ncols=4)
    panels[1].set_ylabel("error on day 0, over the first")
    panels[2].set_ylabel("sight on the golden set")
    panels[2].set_xlabel("day")
    files.make_directory(path.parent)
    figure.savefig(path, dpi=110)


def mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
