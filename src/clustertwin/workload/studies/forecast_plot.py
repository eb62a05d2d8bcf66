"""A forecast as a picture: the weeks of the log, then the median and the interval of the coming weeks, by measure."""

from __future__ import annotations

from typing import Any

import numpy as np

from clustertwin.page import COLOURS, figure, page, plot_text, svg
from clustertwin.workload.studies.site_forecast import SiteForecast

LABELS = {"load": "offered load", "jobs": "jobs per week", "users": "active users", "wait_s": "mean EASY wait, hours"}


def draw_forecast(made: SiteForecast, title: str) -> Any:
    """A matplotlib figure with one panel for each measure."""
    drawing, axes = figure(11, 6.5, 2, 2)
    drawing.suptitle(plot_text(title))
    for axis, (name, label) in zip(axes.flat, LABELS.items(), strict=True):
        unit = 3600.0 if name == "wait_s" else 1.0
        past = made.past[name] / unit
        low, middle, high = made.interval(name) / unit
        coming = np.arange(1, len(middle) + 1)
        axis.plot(np.arange(1 - len(past), 1), past, color=COLOURS[0], label="log")
        axis.fill_between(coming, low, high, color=COLOURS[1], alpha=0.3, label=f"{made.settings.share:.0%} of draws")
        axis.plot(coming, middle, color=COLOURS[1], label="median")
        axis.set(xlabel="weeks from the end of the log", ylabel=label, ylim=(0, None))
    axes[0, 0].legend(frameon=False)
    return drawing


def forecast_page(made: SiteForecast, title: str) -> str:
    """The picture as one self-contained HTML page."""
    from html import escape

    notes = "".join(f"<li>Not learnt: {escape(reason)}.</li>" for reason in made.not_learnt)
    return page(title, f"<h1>{escape(title)}</h1>{svg(draw_forecast(made, ''), 'forecast')}<ul>{notes}</ul>")
