"""Compared logs -> inline SVG: distributions, correlation heat maps, arrivals, in the text colour of the page."""

from __future__ import annotations

import numpy as np

from clustertwin.page import COLOURS, INK, figure, plot_text, svg
from clustertwin.workload.fidelity.measures.arrivals import LAGS, SCALES, autocorrelations, by_hour, by_weekday, fano
from clustertwin.workload.fidelity.measures.compared_log import ComparedLog
from clustertwin.workload.fidelity.measures.correlation import spearman

UNITS = {"interval": "seconds", "run": "seconds", "limit": "seconds", "memory": "bytes"}
POINTS = 400  # per curve: more are not visible


def distributions(real: ComparedLog, others: list[ComparedLog], names: tuple[str, ...]) -> str:
    """Cumulative distribution of every compared column, on a log axis of value + 1, which has a place for 0."""
    across = min(3, len(names))
    down = -(-len(names) // across)
    plot, axes = figure(12, 3.1 * down, down, across)
    for axis, name in zip(axes.flat, names, strict=False):
        for log, colour, width in _styled(real, others):
            values = np.sort(log.column(name))
            values = values[values >= 0]
            if not len(values):
                continue
            at = np.unique(np.linspace(0, len(values) - 1, POINTS).astype(int))
            axis.step(values[at] + 1, (at + 1) / len(values), where="post", color=colour, linewidth=width)
        axis.set(xscale="log", title=name, ylim=(0, 1.02), xlabel=f"{UNITS.get(name, name)}, plus 1")
        axis.xaxis.set_minor_formatter("")  # on an axis of one decade, their labels would lie one upon the other
    for axis in list(axes.flat)[len(names) :]:
        axis.set_visible(False)
    return svg(plot, "cdf", "Cumulative distributions of the real and the synthetic logs")


def _styled(real: ComparedLog, others: list[ComparedLog]) -> list[tuple[ComparedLog, str, float]]:
    """Each log with its colour and line width. The real log is below, and wider: an equal one is seen on top of it."""
    return [(real, INK, 3.2), *((log, COLOURS[i % len(COLOURS)], 1.4) for i, log in enumerate(others))]


def heat_maps(real: ComparedLog, others: list[ComparedLog], names: tuple[str, ...]) -> str:
    """Rank correlation matrices side by side, with the number in each cell."""
    logs = [real, *others]
    across = min(3, len(logs))
    down = -(-len(logs) // across)
    plot, axes = figure(12, 3.9 * down, down, across)
    for axis, log in zip(axes.flat, logs, strict=False):
        known = tuple(name for name in names if np.any(log.column(name) >= 0))
        matrix = spearman(log.table(known))
        axis.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu_r", aspect="auto")
        axis.set(xticks=range(len(known)), yticks=range(len(known)), title=plot_text(log.name))
        axis.set_xticklabels(known, rotation=30, ha="right")
        axis.set_yticklabels(known)
        for i, row in enumerate(matrix):
            for j, value in enumerate(row):
                colour = "white" if abs(value) > 0.55 else "black"
                axis.text(j, i, f"{value:.2f}", ha="center", va="center", color=colour)
    for axis in list(axes.flat)[len(logs) :]:
        axis.set_visible(False)
    return svg(plot, "heat", "Rank correlations between the columns of each log")


def arrival_plots(real: ComparedLog, others: list[ComparedLog]) -> str:
    """Autocorrelation by lag, Fano factor by scale, submissions by hour and by weekday."""
    plot, axes = figure(12, 6.2, 2, 2)
    for log, colour, width in _styled(real, others):
        interval = log.column("interval")[1:]
        style = {"color": colour, "linewidth": width, "marker": "."}
        axes[0, 0].plot(LAGS, list(autocorrelations(interval).values()), **style)
        axes[0, 1].plot(SCALES, [fano(log.jobs.submit_s, scale) for scale in SCALES], **style)
        axes[1, 0].plot(range(24), by_hour(log.jobs), **style)
        axes[1, 1].plot(range(7), by_weekday(log.jobs), **style)
    axes[0, 0].set(xscale="log", xlabel="lag, jobs", title="Rank autocorrelation of intervals")
    axes[0, 1].set(xscale="log", yscale="log", xlabel="window, mean intervals", title="Fano factor of arrivals")
    # Without dates, hours and weekdays count from the time zero of the log.
    since = "" if real.jobs.epoch_s else ", counted from the start of the log"
    axes[1, 0].set(xlabel=f"hour of the day{since}", ylim=(0, None), title="Submissions by hour")
    axes[1, 1].set(xlabel=f"weekday{since}", ylim=(0, None), title="Submissions by weekday")
    axes[1, 1].set_xticks(range(7), ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"))
    return svg(plot, "arrive", "Arrivals of the real and the synthetic logs")
