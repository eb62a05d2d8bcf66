"""Plots of a log: sizes, run times and limits, users, submissions by hour and weekday, load over time."""

from __future__ import annotations

import io
from html import escape
from typing import Any

import numpy as np

from clustertwin.core.extras import require
from clustertwin.page import plot_text
from clustertwin.workload.description.log_description import LogDescription, running
from clustertwin.workload.jobs import Jobs

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
INK, SOFT = "#2f6f9f", "#c96f3b"


def draw(jobs: Jobs, described: LogDescription, title: str = "") -> Any:
    """A matplotlib figure with six panels."""
    figure = require("matplotlib.figure", "plots").Figure(figsize=(13, 7.5), layout="constrained")
    panels = figure.subplots(2, 3)
    figure.suptitle(plot_text(title) or f"{len(jobs)} jobs")
    _sizes(panels[0, 0], jobs, described)
    _times(panels[0, 1], jobs)
    _users(panels[0, 2], jobs)
    _bars(panels[1, 0], range(24), described.by_hour, "hour of the day", "share of submissions")
    weekday = "weekday" if jobs.epoch_s else "day of the week, counted from the start of the log"
    _bars(panels[1, 1], DAYS, described.by_weekday, weekday, "")
    _load(panels[1, 2], jobs, described)
    return figure


def page(jobs: Jobs, described: LogDescription, title: str) -> str:
    """The same figure as one self-contained HTML file."""
    out = io.StringIO()
    draw(jobs, described).savefig(out, format="svg", metadata={"Date": None})
    svg = out.getvalue()[out.getvalue().index("<svg") :]
    head = f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title>"
    style = "h1 { font: bold 1.5rem system-ui, sans-serif } svg { width: 100%; height: auto; background: white }"
    return f"{head}<style>{style}</style><main><h1>{escape(title)}</h1>{svg}</main></html>\n"


def _sizes(axis: Any, jobs: Jobs, described: LogDescription) -> None:
    unit = described.machine.unit
    size = getattr(jobs, unit)
    size = size[size > 0]
    largest = size.max(initial=1)
    edges = np.unique(np.concatenate([2.0 ** np.arange(0, np.log2(largest) + 1), [largest + 1]]))
    axis.hist(size, bins=edges, color=INK, weights=np.full(len(size), 1 / len(jobs)))
    axis.set(xscale="log", xlabel=f"{unit} per job", ylabel="share of jobs", title="Sizes")


def _times(axis: Any, jobs: Jobs) -> None:
    for values, label, colour in ((jobs.run_s, "run time", INK), (jobs.request_s, "limit", SOFT)):
        known = np.sort(values[values > 0])
        if len(known):
            axis.plot(known / 3600, np.arange(1, len(known) + 1) / len(known), label=label, color=colour)
    axis.set(xscale="log", xlabel="hours", ylabel="cumulative share of jobs", title="Run times and limits")
    if axis.lines:
        axis.legend(frameon=False)


def _users(axis: Any, jobs: Jobs) -> None:
    _, counts = np.unique(jobs.user, return_counts=True)
    share = np.sort(counts)[::-1].cumsum() / len(jobs)
    axis.plot(np.arange(1, len(share) + 1), share, color=INK, marker="." if len(share) < 60 else "")
    axis.set(xscale="log", ylim=(0, 1.02), xlabel="number of the busiest users",
             ylabel="their share of all jobs", title="Users")  # fmt: skip


def _bars(axis: Any, labels: Any, heights: tuple[float, ...], xlabel: str, ylabel: str) -> None:
    axis.bar(list(labels), heights, color=INK)
    axis.set(xlabel=xlabel, ylabel=ylabel, title="Arrivals")


def _load(axis: Any, jobs: Jobs, described: LogDescription) -> None:
    at_s, share = running(jobs, described.machine)
    axis.fill_between(at_s / 86400, share, step="mid", color=INK, alpha=0.6, linewidth=0)
    state = "in use" if np.any(jobs.wait_s >= 0) else "requested"
    axis.set(xlabel="days", ylabel=f"share of {described.machine.procs} {described.machine.unit} {state}",
             title=f"Load over time (offered: {described.offered_load:.2f})")  # fmt: skip
