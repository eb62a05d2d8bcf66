"""Draw a schedule: who held which processors when, and how full the machine was -> a PNG, SVG or HTML file."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.core.extras import require
from clustertwin.workload.simulator.schedule import Schedule

SUFFIXES = (".png", ".svg", ".html")


def rows(schedule: Schedule) -> list[list[tuple[int, int]]]:
    """The stretches of processors each job gets, lowest free ones first: [(first, how many), …] a job."""
    held: list[list[tuple[int, int]]] = [[] for _ in range(len(schedule))]
    free = np.ones(schedule.procs, dtype=bool)
    times_s = np.concatenate([schedule.end_s, schedule.start_s])
    starting = np.repeat([0, 1], len(schedule))  # ends first where they meet
    job = np.tile(np.arange(len(schedule)), 2)
    # A job of no length would end before it starts; it holds nothing anybody could see.
    for at in np.lexsort((starting, times_s)):
        which = job[at]
        if schedule.run_s[which] <= 0:
            continue
        if not starting[at]:
            for first, many in held[which]:
                free[first : first + many] = True
            continue
        taken = np.flatnonzero(free)[: schedule.size[which]]
        free[taken] = False
        cuts = np.flatnonzero(np.diff(taken) > 1) + 1
        held[which] = [(int(part[0]), len(part)) for part in np.split(taken, cuts)]
    return held


def load_over_time(schedule: Schedule) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """At each moment something changes: processors held, and jobs waiting."""
    times_s = np.concatenate([schedule.start_s, schedule.end_s, schedule.jobs.submit_s])
    size, one = schedule.size, np.ones(len(schedule), dtype=np.int64)
    held = np.concatenate([size, -size, 0 * one])
    waiting = np.concatenate([-one, 0 * one, one])
    moments, at = np.unique(times_s, return_inverse=True)
    sums = [np.cumsum(np.bincount(at, weights=change, minlength=len(moments))) for change in (held, waiting)]
    return moments, sums[0].astype(np.int64), sums[1].astype(np.int64)


def draw(schedule: Schedule, path: Path, hours: tuple[float, float] | None = None) -> None:
    """Write the chart; `hours` keeps to a part of the log, counted from its first submission."""
    if path.suffix not in SUFFIXES:
        raise SettingsError(f"{path}: a chart is drawn as {', '.join(SUFFIXES)}")
    require("matplotlib", "plots").use("Agg")
    plt: Any = require("matplotlib.pyplot", "plots")
    PolyCollection = require("matplotlib.collections", "plots").PolyCollection
    begin_s = float(schedule.jobs.submit_s.min())
    first_s, last_s = (
        (begin_s + hours[0] * 3600, begin_s + hours[1] * 3600) if hours else (begin_s, schedule.end_s.max())
    )

    def clock(time_s: Any) -> Any:
        return (time_s - begin_s) / 3600

    figure, (top, middle, bottom) = plt.subplots(
        3, 1, sharex=True, figsize=(12, 8), height_ratios=[5, 1.3, 1.3], layout="constrained"
    )
    boxes, colours = [], []
    for job, stretches in enumerate(rows(schedule)):
        if schedule.start_s[job] > last_s or schedule.end_s[job] < first_s:
            continue
        left, right = clock(schedule.start_s[job]), clock(schedule.end_s[job])
        for first, many in stretches:
            boxes.append([(left, first), (right, first), (right, first + many), (left, first + many)])
            colours.append(int(schedule.jobs.user[job]) % 20)
    shapes = PolyCollection(boxes, array=np.array(colours), cmap="tab20", linewidths=0.2, edgecolors="white")
    shapes.set_clim(0, 20)
    top.add_collection(shapes)
    top.set(ylim=(0, schedule.procs), ylabel="processors", title=f"{schedule.policy}, backfilling: {schedule.backfill}")
    moments, held, waiting = load_over_time(schedule)
    middle.fill_between(clock(moments), held / schedule.procs, step="post", alpha=0.6)
    middle.set(ylim=(0, 1.02), ylabel="utilisation")
    bottom.step(clock(moments), waiting, where="post")
    bottom.set(ylim=(0, None), ylabel="waiting jobs", xlabel="hours", xlim=(clock(first_s), clock(last_s)))
    if path.suffix == ".html":
        text = io.StringIO()
        figure.savefig(text, format="svg")
        svg = text.getvalue()
        page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{schedule.policy}</title>'
        path.write_text(f"{page}{svg[svg.index('<svg') :]}</html>")
    else:
        figure.savefig(path, dpi=150)
    plt.close(figure)
