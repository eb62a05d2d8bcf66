"""The days of a simulated month -> one summary per strategy, and a figure of all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from clustertwin.core import files
from clustertwin.core.extras import require


@dataclass(frozen=True, slots=True)
class DayResult:
    """One day under one strategy, as the study stores it."""

    day: int
    new: bool  # does the day bring new job types or new hardware?
    error: float  # on normal threads
    false_events: float  # per node and day
    jobs_wrong: int  # that went on long enough to be counted
    jobs_found: int  # of these, jobs with an event
    creep: float  # how much longer the waits for the failing disk are: 1.0 means twice as long
    disk_events: int  # events about the disk
    disk_sight: float  # recall of the disk failure at its worst: 0 if the champion learned it as normal
    golden: float  # part of the faults that the champion sees, imposed on healthy jobs of this day
    first_error: float  # on held-out moments of day 0: it grows when the champion forgets
    outcome: str = ""
    training_s: float = 0.0  # CPU time
    shadow: bool = False  # nobody was notified on this day: the site was not known yet
    new_wrong: int = 0  # of the jobs that went wrong, those of programs that were never recorded
    new_found: int = 0
    because: str = ""  # why the night ended so


@dataclass(frozen=True, slots=True)
class StrategySummary:
    """A month under one strategy."""

    strategy: str
    error: float
    false_events: float  # per node and day, over the month
    false_usual: float  # the same, over the days without a change
    found: float  # part of the jobs that went wrong
    disk_days: float  # from the first day of the disk failure to its first event; NaN: there was none
    disk_sight: float  # on the worst day
    golden: float  # mean over the days
    golden_worst: float  # on the worst day
    forgetting: float  # the last `first_error` divided by the first
    promoted: int
    halted: int
    training_h: float


def summarise(strategy: str, days: Sequence[DayResult]) -> StrategySummary:
    """The summary of a month. The mean of no values is NaN."""
    wrong = sum(day.jobs_wrong for day in days)
    failing = [day.day for day in days if day.creep]
    detected = [day.day for day in days if day.disk_events]
    return StrategySummary(
        strategy,
        error=_mean([day.error for day in days]),
        false_events=_mean([day.false_events for day in days]),
        false_usual=_mean([day.false_events for day in days if not day.new]),
        found=sum(day.jobs_found for day in days) / wrong if wrong else float("nan"),
        disk_days=float(detected[0] - failing[0]) if detected else float("nan"),
        disk_sight=min(day.disk_sight for day in days),
        golden=_mean([day.golden for day in days]),
        golden_worst=min(day.golden for day in days),
        forgetting=days[-1].first_error / days[0].first_error,
        promoted=sum(day.outcome == "promoted" for day in days),
        halted=sum(day.outcome == "halted" for day in days),
        training_h=sum(day.training_s for day in days) / 3600,
    )


def by_day(days: Sequence[DayResult]) -> list[tuple[str | float, ...]]:
    """The rows of a table: day, shadow, false events, found in usual and new programs, informedness, outcome."""

    def part(found: int, wrong: int) -> str:
        return f"{found} of {wrong}"

    return [
        (
            day.day,
            "shadow" if day.shadow else "",
            day.false_events,
            part(day.jobs_found - day.new_found, day.jobs_wrong - day.new_wrong),
            part(day.new_found, day.new_wrong),
            day.golden,
            day.outcome,
        )
        for day in days
    ]


def write_days(path: Path, days: Sequence[DayResult]) -> None:
    files.make_directory(path.parent)
    files.write(path, json.dumps([asdict(day) for day in days], indent=1))


def read_days(path: Path) -> list[DayResult]:
    return [DayResult(**row) for row in json.loads(path.read_text())]


def draw_month(months: Mapping[str, Sequence[DayResult]], path: Path) -> None:
    """False events, forgetting and golden-set informedness day by day; dotted lines mark changes of the cluster."""
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
    panels[0].set_ylabel("false events per node-day")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", frameon=False, ncols=4)
    panels[1].set_ylabel("error on day 0, relative to the first")
    panels[2].set_ylabel("recall − false alarms, golden set")
    panels[2].set_xlabel("day")
    files.make_directory(path.parent)
    with files.replacing(path) as out:
        figure.savefig(out, format="png", dpi=110)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
