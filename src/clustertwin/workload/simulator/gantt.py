"""Draw a schedule: the processors of each job, the utilisation and the queue length -> a PNG, SVG or HTML file."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core import files
from clustertwin.core.errors import SettingsError
from clustertwin.core.extras import require
from clustertwin.page import plot_text
from clustertwin.workload.simulator.gantt_page import gantt_page
from clustertwin.workload.simulator.schedule import Schedule

SUFFIXES = (".png", ".svg", ".html")


def processor_ranges(schedule: Schedule) -> list[list[tuple[int, int]]]:
    """Assign processors to jobs, lowest free ones first: the ranges (first, count) of each job."""
    ranges: list[list[tuple[int, int]]] = [[] for _ in range(len(schedule))]
    free = np.ones(schedule.procs, dtype=bool)
    times_s = np.concatenate([schedule.end_s, schedule.start_s])
    is_start = np.repeat([0, 1], len(schedule))  # at the same time, ends come before starts
    jobs = np.tile(np.arange(len(schedule)), 2)
    for event in np.lexsort((is_start, times_s)):
        job = jobs[event]
        if schedule.run_s[job] <= 0:
            continue  # its end would come before its start, and it has no width in the chart
        if not is_start[event]:
            for first, count in ranges[job]:
                free[first : first + count] = True
            continue
        assigned = np.flatnonzero(free)[: schedule.size[job]]
        free[assigned] = False
        cuts = np.flatnonzero(np.diff(assigned) > 1) + 1
        ranges[job] = [(int(part[0]), len(part)) for part in np.split(assigned, cuts)]
    return ranges


def load_over_time(schedule: Schedule) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """The times of all events, and from each on: processors in use, and jobs waiting."""
    times_s = np.concatenate([schedule.start_s, schedule.end_s, schedule.jobs.submit_s])
    size, ones = schedule.size, np.ones(len(schedule), dtype=np.int64)
    procs_change = np.concatenate([size, -size, 0 * ones])
    queue_change = np.concatenate([-ones, 0 * ones, ones])
    moments, at = np.unique(times_s, return_inverse=True)
    in_use, waiting = (
        np.cumsum(np.bincount(at, weights=change, minlength=len(moments))).astype(np.int64)
        for change in (procs_change, queue_change)
    )
    return moments, in_use, waiting


def draw(schedule: Schedule, path: Path, hours: tuple[float, float] | None = None) -> None:
    """Write the chart to a file. `hours` selects a part of the log, counted from its first submission."""
    if path.suffix not in SUFFIXES:
        raise SettingsError(f"{path}: the suffix of a chart is one of {', '.join(SUFFIXES)}")
    begin_s = float(schedule.jobs.submit_s.min())
    last_s = float(schedule.end_s.max())
    between_s = (begin_s + hours[0] * 3600, begin_s + hours[1] * 3600) if hours else (begin_s, last_s)
    if path.suffix == ".html":
        files.write(path, gantt_page(schedule, processor_ranges(schedule), between_s).encode())
    else:
        files.write(path, _image(schedule, between_s, path.suffix[1:]))


def _image(schedule: Schedule, between_s: tuple[float, float], form: str) -> bytes:
    """The chart as a PNG or an SVG."""
    require("matplotlib", "plots").use("Agg")
    plt: Any = require("matplotlib.pyplot", "plots")
    PolyCollection = require("matplotlib.collections", "plots").PolyCollection
    begin_s, (first_s, last_s) = float(schedule.jobs.submit_s.min()), between_s

    def hour(time_s: Any) -> Any:
        return (time_s - begin_s) / 3600

    figure, (top, middle, bottom) = plt.subplots(
        3, 1, sharex=True, figsize=(12, 8), height_ratios=[5, 1.3, 1.3], layout="constrained"
    )
    boxes, colours = [], []
    for job, ranges in enumerate(processor_ranges(schedule)):
        if schedule.start_s[job] > last_s or schedule.end_s[job] < first_s:
            continue
        left, right = hour(schedule.start_s[job]), hour(schedule.end_s[job])
        for first, count in ranges:
            boxes.append([(left, first), (right, first), (right, first + count), (left, first + count)])
            colours.append(int(schedule.jobs.user[job]) % 20)
    shapes = PolyCollection(boxes, array=np.array(colours), cmap="tab20", linewidths=0.2, edgecolors="white")
    shapes.set_clim(0, 20)
    top.add_collection(shapes)
    top.set(
        ylim=(0, schedule.procs),
        ylabel="processors",
        title=f"{plot_text(schedule.policy)}, backfilling: {schedule.backfill}",
    )
    moments, in_use, waiting = load_over_time(schedule)
    middle.fill_between(hour(moments), in_use / schedule.procs, step="post", alpha=0.6)
    middle.set(ylim=(0, 1.02), ylabel="utilisation")
    bottom.step(hour(moments), waiting, where="post")
    bottom.set(ylim=(0, None), ylabel="waiting jobs", xlabel="hours", xlim=(hour(first_s), hour(last_s)))
    out = io.BytesIO()
    figure.savefig(out, format=form, dpi=150)
    plt.close(figure)
    return out.getvalue()
