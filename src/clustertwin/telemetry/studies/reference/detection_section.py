"""Detection: our detector, its views, models' errors and baseline detectors -> ROC-AUC, recall and events.

Everything is fitted on the training campaigns and evaluated on each test campaign. The tables show the worst campaign,
without point adjustment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from clustertwin.core.errors import MissingExtra, SettingsError
from clustertwin.core.traces import Windows
from clustertwin.page import COLOURS, figure, svg
from clustertwin.telemetry.detection.calibration import calibrate
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.models.contract import Autoencoder
from clustertwin.telemetry.models.model_store import StoredModel
from clustertwin.telemetry.moments.moment import LENGTH_S, WINDOW_S, Moment, moments
from clustertwin.telemetry.studies.event_metrics import EventCounts, count_events
from clustertwin.telemetry.studies.reference.section import Picture, Section, Table
from clustertwin.telemetry.studies.reference.study_data import Campaign, StudyData
from clustertwin.telemetry.studies.rival_detectors import RIVALS, model_error
from clustertwin.telemetry.studies.window_metrics import Scorer, ScorerMetrics, evaluate_scorers

OURS = "clustertwin"
FALSE_POSITIVE_RATE = 1e-3  # at which recall is measured


def detection_section(
    data: StudyData,
    models: Mapping[str, Autoencoder],
    default: str,
    seed: int,
    progress: Callable[[str], None],
) -> Section:
    """The section. The detector uses the model `default`; baseline detectors that are not installed are left out."""
    if data.length_s != WINDOW_S:
        raise SettingsError(f"the detector needs windows of {WINDOW_S} s, these have {data.length_s} s")
    train, check = (
        [moment for campaign in campaigns for moment, _ in labelled_moments(campaign, data.learn_stride_s)]
        for campaigns in (data.train, data.validation)
    )
    progress("calibrating")
    ours = calibrate(StoredModel(default, models[default]), check, learn=train)
    score = cached_scores(ours)
    scorers: dict[str, Scorer] = {OURS: lambda moment: score(moment).score}
    scorers |= {f"only {view}": of_view(score, i) for i, view in enumerate(ours.views)}
    scorers |= {f"{name}, error": model_error(StoredModel(name, model)) for name, model in models.items()}
    missing = []
    for name, rival in RIVALS.items():
        progress(name)
        try:
            scorers[name] = rival(train, seed)
        except MissingExtra:
            missing.append(name)
    metrics: list[dict[str, ScorerMetrics]] = []
    counts: list[EventCounts] = []
    for number, campaign in enumerate(data.test):
        progress(f"test campaign {number + 1} of {len(data.test)}")
        test = labelled_moments(campaign, data.test_stride_s)
        metrics.append(evaluate_scorers(scorers, test, FALSE_POSITIVE_RATE, {OURS: ours.threshold}))
        counts.append(count_events(ours, campaign))
    return _section(metrics, counts, missing, list(scorers))


def labelled_moments(campaign: Campaign, every_s: int) -> Iterator[tuple[Moment, Windows]]:
    """The moments of a campaign, five minutes long or shorter if the campaign is, and their last windows' labels."""
    length_s = max(trace.end_s for trace in campaign) - min(trace.start_s for trace in campaign)
    return moments(campaign, every_s, min(LENGTH_S, length_s))


def cached_scores(detector: Detector) -> Callable[[Moment], Scores]:
    """The detector's scores of a moment; those of the last moment are cached."""
    last: list[tuple[Moment, Scores]] = []

    def score(moment: Moment) -> Scores:
        if not last or last[0][0] is not moment:
            last[:] = [(moment, detector.score(moment))]
        return last[0][1]

    return score


def of_view(score: Callable[[Moment], Scores], column: int) -> Scorer:
    """One view of the detector alone."""
    return lambda moment: score(moment).surprise[:, column]


def _section(
    metrics: list[dict[str, ScorerMetrics]], counts: list[EventCounts], missing: list[str], names: list[str]
) -> Section:
    anomalies = sorted({anomaly for campaign in metrics for row in campaign.values() for anomaly in row.anomalies})

    def worst(name: str, anomaly: str, metric: str) -> float:
        rows = [campaign[name].anomalies[anomaly] for campaign in metrics if anomaly in campaign[name].anomalies]
        return min((getattr(row, metric) for row in rows), default=float("nan"))

    def table(title: str, metric: str, note: str) -> Table:
        rows = tuple((name, *(f"{worst(name, anomaly, metric):.3f}" for anomaly in anomalies)) for name in names)
        return Table(title, ("detector", *anomalies), rows, note)

    left_out = f" Left out because they are not installed: {', '.join(missing)}." if missing else ""
    auc = table("ROC-AUC of each anomaly", "auc", f"Per window, against all normal windows; worst campaign.{left_out}")
    recall = table("Recall at 0.1 % false positives", "recall", "Per window, not point-adjusted; worst campaign.")
    events = Table(
        "Events",
        ("campaign", "afflicted jobs", "of them found", "false", "false per node-day", "windows above it"),
        tuple(
            (i + 1, count.total, count.detected, count.false_events, f"{count.false_per_node_day:.2f}",
             f"{metrics[i][OURS].false_positive_rate:.3%}")
            for i, count in enumerate(counts)
        ),
        "The events that the live service would have shown. Last column: normal windows above the threshold.",
    )  # fmt: skip
    lowest = min((worst(OURS, anomaly, "auc"), anomaly) for anomaly in anomalies) if anomalies else (float("nan"), "")
    text = (
        f"Test campaigns: {len(metrics)}, none of them used for fitting. The detector's lowest ROC-AUC is "
        f"{lowest[0]:.3f} ({lowest[1]})."
    )
    pictures = (_picture(names, anomalies, worst),) if anomalies else ()
    return Section("detection", "Detection", text, (auc, recall, events), pictures)


def _picture(names: list[str], anomalies: list[str], worst: Callable[[str, str, str], float]) -> Picture:
    """A heat map of AUCs; dark cells are low."""
    level = np.array([[worst(name, anomaly, "auc") for anomaly in anomalies] for name in names])
    drawing, axes = figure(11, 0.34 * len(names) + 1.6, 1, 1)
    axis = axes[0, 0]
    axis.imshow(level, vmin=0.4, vmax=1, cmap="cividis", aspect="auto")
    axis.set_xticks(range(len(anomalies)), anomalies, rotation=35, ha="right")
    axis.set_yticks(range(len(names)), names)
    for i, j in np.ndindex(level.shape):
        colour = "black" if level[i, j] > 0.75 else "white"
        axis.text(j, i, f"{level[i, j]:.2f}", ha="center", va="center", color=colour, fontsize=7)
    axis.spines[:].set_color(COLOURS[-1])
    return Picture("ROC-AUC, worst campaign", svg(drawing, "auc"))
