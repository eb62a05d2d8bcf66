"""Plots in Python: a log, a schedule, traces or scores -> a matplotlib figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clustertwin.api.thread_telemetry import ThreadScores, traces_of
from clustertwin.core.cluster_traces import ClusterTraces
from clustertwin.core.extras import require
from clustertwin.core.traces import Trace
from clustertwin.page import plot_text
from clustertwin.telemetry.recording import Recording
from clustertwin.workload.jobs import Jobs

if TYPE_CHECKING:
    from clustertwin.workload.simulator import Schedule


def plot(result: Any) -> Any:
    """A matplotlib figure of a job log, a schedule, traces, a recording or scores.

    >>> import clustertwin as ct
    >>> figure = ct.plot(ct.simulate_cluster(minutes=5))
    >>> len(figure.axes)
    2
    """
    if isinstance(result, Jobs):
        from clustertwin.workload.description.log_description import describe
        from clustertwin.workload.description.log_plots import draw

        return draw(result, describe(result))
    if isinstance(result, ThreadScores):
        return _scores(result)
    if isinstance(result, ClusterTraces | Recording | Trace):
        return _threads(traces_of(result))
    from clustertwin.workload.simulator import Schedule

    if isinstance(result, Schedule):
        return _schedule(result)
    raise TypeError(f"plot takes a job log, a schedule, traces, a recording or scores, not {type(result).__name__}")


def _figure(height: float) -> Any:
    return require("matplotlib.figure", "plots").Figure(figsize=(11, height), layout="constrained")


def _threads(traces: list[Trace]) -> Any:
    """A heat map: threads over time, the share of time that is not idle."""
    figure = _figure(1.5 + 0.12 * sum(len(trace.cpus) for trace in traces))
    axes = figure.subplots()
    first = min(trace.start_s for trace in traces)
    busy = [
        np.where(trace.valid, 1 - trace.values[..., trace.schema.index("other")], np.nan)
        for trace in traces
    ]  # fmt: skip
    rows = np.concatenate(busy)
    extent = (0, (max(trace.end_s for trace in traces) - first) / 60, len(rows), 0)
    image = axes.imshow(rows, aspect="auto", interpolation="nearest", vmin=0, vmax=1, extent=extent, cmap="viridis")
    starts = np.cumsum([0, *(len(trace.cpus) for trace in traces[:-1])])
    axes.set(xlabel="minutes", yticks=starts, yticklabels=[trace.node for trace in traces], ylabel="threads of")
    figure.colorbar(image, label="share of each second that is not idle")
    return figure


def _scores(scores: ThreadScores) -> Any:
    """The highest score of each job over time, with the threshold."""
    figure = _figure(4)
    axes = figure.subplots()
    for job in np.unique(scores.job):
        mine = scores.job == job
        times = np.unique(scores.time_s[mine])
        highest = [np.nanmax(scores.score[mine & (scores.time_s == time)], initial=0.0) for time in times]
        axes.plot((times - scores.start_s) / 60, highest, label=f"job {job}" if job else "no job")
    axes.axhline(scores.threshold, color="black", linestyle=":", label="threshold")
    axes.set(xlabel="minutes", ylabel="highest score of a thread")
    axes.legend(loc="upper left")
    return figure


def _schedule(schedule: Schedule) -> Any:
    """Processors in use and jobs waiting, over time."""
    from clustertwin.workload.simulator.gantt import load_over_time

    figure = _figure(5)
    top, bottom = figure.subplots(2, 1, sharex=True)
    times_s, in_use, waiting = load_over_time(schedule)
    days = (times_s - times_s[0]) / 86_400
    top.fill_between(days, in_use / schedule.procs, step="post", alpha=0.6)
    top.set(
        ylim=(0, 1.02), ylabel="utilisation", title=f"{plot_text(schedule.policy)}, backfilling: {schedule.backfill}"
    )
    bottom.step(days, waiting, where="post")
    bottom.set(ylim=(0, None), ylabel="waiting jobs", xlabel="days")
    return figure
