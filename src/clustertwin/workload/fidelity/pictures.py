"""Samples -> inline SVG: distributions, correlation heat maps, arrivals; the ink is the page's, light or dark."""

from __future__ import annotations

import numpy as np

from clustertwin.page import COLOURS, INK, figure, svg
from clustertwin.workload.fidelity.arrivals import LAGS, SCALES, autocorrelation, by_hour, by_weekday, fano
from clustertwin.workload.fidelity.correlation import spearman
from clustertwin.workload.fidelity.sample import Sample

UNITS = {"interval": "s", "run": "s", "limit": "s", "memory": "bytes"}
POINTS = 400


def distributions(real: Sample, others: list[Sample], names: tuple[str, ...]) -> str:
    """Cumulative distribution of every compared column, on a log axis (moved by 1, so that 0 has a place)."""
    across = min(3, len(names))
    down = -(-len(names) // across)
    made, axes = figure(12, 3.1 * down, down, across)
    for axis, name in zip(axes.flat, names, strict=False):
        for sample, colour, width in _styled(real, others):
            values = np.sort(sample.column(name))
            values = values[values >= 0]
            if not len(values):
                continue
            # Enough points to be exact to the eye at any number of jobs.
            at = np.unique(np.linspace(0, len(values) - 1, POINTS).astype(int))
            axis.step(values[at] + 1, (at + 1) / len(values), where="post", color=colour, linewidth=width)
        axis.set(xscale="log", title=name, ylim=(0, 1.02), xlabel=f"{UNITS.get(name, '')} + 1".strip())
    for axis in list(axes.flat)[len(names) :]:
        axis.set_visible(False)
    return svg(made, "cdf")


def _styled(real: Sample, others: list[Sample]) -> list[tuple[Sample, str, float]]:
    styled = [(sample, COLOURS[i % len(COLOURS)], 1.4) for i, sample in enumerate(others)]
    return [*styled, (real, INK, 2.2)]


def heat_maps(real: Sample, others: list[Sample], names: tuple[str, ...]) -> str:
    """Rank correlations side by side, the number in each cell."""
    samples = [real, *others]
    across = min(3, len(samples))
    down = -(-len(samples) // across)
    made, axes = figure(12, 3.9 * down, down, across)
    for axis, sample in zip(axes.flat, samples, strict=False):
        known = tuple(name for name in names if np.any(sample.column(name) >= 0))
        matrix = spearman(sample.table(known))
        axis.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu_r", aspect="auto")
        axis.set(xticks=range(len(known)), yticks=range(len(known)), title=sample.name)
        axis.set_xticklabels(known, rotation=30, ha="right")
        axis.set_yticklabels(known)
        for i, row in enumerate(matrix):
            for j, value in enumerate(row):
                axis.text(
                    j, i, f"{value:.2f}", ha="center", va="center", color="white" if abs(value) > 0.55 else "black"
                )
    for axis in list(axes.flat)[len(samples) :]:
        axis.set_visible(False)
    return svg(made, "heat")


def arrival_plots(real: Sample, others: list[Sample]) -> str:
    """Autocorrelation by lag, dispersion by scale, hours of the day, weekdays."""
    made, axes = figure(12, 6.2, 2, 2)
    for sample, colour, width in _styled(real, others):
        interval = sample.column("interval")[1:]
        style = {"color": colour, "linewidth": width, "marker": "."}
        axes[0, 0].plot(LAGS, [autocorrelation(interval, lag) for lag in LAGS], **style)
        axes[0, 1].plot(SCALES, [fano(sample.jobs.submit_s, scale) for scale in SCALES], **style)
        axes[1, 0].plot(range(24), by_hour(sample.jobs), **style)
        axes[1, 1].plot(range(7), by_weekday(sample.jobs), **style)
    axes[0, 0].set(xscale="log", xlabel="lag, jobs", title="Rank autocorrelation of intervals")
    axes[0, 1].set(xscale="log", yscale="log", xlabel="window, mean intervals", title="Dispersion (Fano) of arrivals")
    # A log without dates has hours and weekdays of its own, counted from its zero.
    since = "" if real.jobs.epoch_s else ", from the log's zero"
    axes[1, 0].set(xlabel=f"hour of the day{since}", ylim=(0, None), title="Submissions by hour")
    axes[1, 1].set(xlabel=f"weekday{since}", ylim=(0, None), title="Submissions by weekday")
    axes[1, 1].set_xticks(range(7), ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"))
    return svg(made, "arrive")
