"""What is seen and what is not: one detector, models' errors, what people use today -> one table, no adjustment.

Everything is fitted on the training campaigns and judged on each test campaign; the worst campaign stands in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from clustertwin.core.errors import MissingExtra, SettingsError
from clustertwin.core.traces import Windows
from clustertwin.page import COLOURS, figure, svg
from clustertwin.telemetry.detection.calibration import calibrate
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.models.contract import Autoencoder
from clustertwin.telemetry.models.model_store import Stored
from clustertwin.telemetry.moments.moment import LENGTH_S, WINDOW_S, Moment, moments
from clustertwin.telemetry.studies.event_metrics import Result, count_events
from clustertwin.telemetry.studies.reference.section import Picture, Section, Table
from clustertwin.telemetry.studies.reference.study_data import Campaign, Data
from clustertwin.telemetry.studies.rival_detectors import RIVALS, model_error
from clustertwin.telemetry.studies.window_metrics import Assessment, Scorer, assess

OURS = "clustertwin"
RATE = 1e-3  # of normal windows, where recall is measured


def detection(
    data: Data,
    models: Mapping[str, Autoencoder],
    default: str,
    seed: int = 0,
    rivals: Sequence[str] = tuple(RIVALS),
    step: Callable[[str], None] = lambda name: None,
) -> Section:
    """The section. `default` is the model that the detector stands on; a rival that is not installed is left out."""
    if data.length_s != WINDOW_S:
        raise SettingsError(f"the detector looks at windows of {WINDOW_S} s, these are of {data.length_s}")
    train, check = (
        [moment for campaign in campaigns for moment, _ in seen(campaign, data.learn_stride_s)]
        for campaigns in (data.train, data.validation)
    )
    step("calibrating")
    ours = calibrate(Stored(default, models[default]), check, learn=train)
    score = _once(ours)
    scorers: dict[str, Scorer] = {OURS: lambda moment: score(moment).score}
    scorers |= {f"only {view}": _view(score, i) for i, view in enumerate(ours.views)}
    scorers |= {f"{name}, error": model_error(Stored(name, model)) for name, model in models.items()}
    absent = []
    for name in rivals:
        step(name)
        try:
            scorers[name] = RIVALS[name](train, seed)
        except MissingExtra:
            absent.append(name)
    found: list[dict[str, Assessment]] = []
    counts: list[Result] = []
    for number, campaign in enumerate(data.test):
        step(f"test campaign {number + 1} of {len(data.test)}")
        found.append(assess(scorers, seen(campaign, data.test_stride_s), RATE, {OURS: ours.threshold}))
        counts.append(count_events(ours, campaign))
    return _section(found, counts, absent, list(scorers))


def seen(campaign: Campaign, every_s: int) -> Iterator[tuple[Moment, Windows]]:
    """The moments of a campaign, of five minutes, or of as long as it lasts, and the labels of their last windows."""
    longest_s = max(trace.end_s for trace in campaign) - min(trace.start_s for trace in campaign)
    return moments(campaign, every_s, min(LENGTH_S, longest_s))


def _once(detector: Detector) -> Callable[[Moment], Scores]:
    """The detector's scores of a moment, made once however many ask."""
    last: list[tuple[Moment, Scores]] = []

    def score(moment: Moment) -> Scores:
        if not last or last[0][0] is not moment:
            last[:] = [(moment, detector.score(moment))]
        return last[0][1]

    return score


def _view(score: Callable[[Moment], Scores], column: int) -> Scorer:
    return lambda moment: score(moment).surprise[:, column]


def _section(found: list[dict[str, Assessment]], counts: list[Result], absent: list[str], names: list[str]) -> Section:
    anomalies = sorted({anomaly for one in found for some in one.values() for anomaly in some.cells})

    def worst(name: str, anomaly: str, what: str) -> float:
        cells = [one[name].cells[anomaly] for one in found if anomaly in one[name].cells]
        return min((getattr(cell, what) for cell in cells), default=float("nan"))

    def table(title: str, what: str, note: str) -> Table:
        rows = tuple((name, *(f"{worst(name, anomaly, what):.3f}" for anomaly in anomalies)) for name in names)
        return Table(title, ("detector", *anomalies), rows, note)

    left_out = f" Not installed here and left out: {', '.join(absent)}." if absent else ""
    auc = table("ROC-AUC of each anomaly", "auc", f"Per window, against all normal windows; worst campaign.{left_out}")
    recall = table(
        "Recall at 0.1 % false positives", "recall", "Per window; worst campaign; nothing is point-adjusted."
    )
    events = Table(
        "Events",
        ("campaign", "afflicted jobs", "of them found", "false", "false per node-day", "windows above it"),
        tuple(
            (i + 1, one.there, one.seen, one.false_events, f"{one.false_per_node_day:.2f}",
             f"{found[i][OURS].false_alarms:.3%}")
            for i, one in enumerate(counts)
        ),
        "What the live service would have shown, with the one threshold; last column: normal windows above it.",
    )  # fmt: skip
    lowest = min((worst(OURS, anomaly, "auc"), anomaly) for anomaly in anomalies) if anomalies else (float("nan"), "")
    text = (
        f"{len(found)} test campaigns, none seen before. With one threshold the detector's lowest ROC-AUC is "
        f"{lowest[0]:.3f} ({lowest[1]})."
    )
    pictures = (_picture(names, anomalies, worst),) if anomalies else ()
    return Section("detection", "What is seen, and what is not", text, (auc, recall, events), pictures)


def _picture(names: list[str], anomalies: list[str], worst: Callable[[str, str, str], float]) -> Picture:
    """A map of AUCs: blind is dark."""
    level = np.array([[worst(name, anomaly, "auc") for anomaly in anomalies] for name in names])
    made, axes = figure(11, 0.34 * len(names) + 1.6, 1, 1)
    axis = axes[0, 0]
    axis.imshow(level, vmin=0.4, vmax=1, cmap="cividis", aspect="auto")
    axis.set_xticks(range(len(anomalies)), anomalies, rotation=35, ha="right")
    axis.set_yticks(range(len(names)), names)
    for i, j in np.ndindex(level.shape):
        colour = "black" if level[i, j] > 0.75 else "white"
        axis.text(j, i, f"{level[i, j]:.2f}", ha="center", va="center", color=colour, fontsize=7)
    axis.spines[:].set_color(COLOURS[-1])
    return Picture("ROC-AUC, worst campaign", svg(made, "auc"))
