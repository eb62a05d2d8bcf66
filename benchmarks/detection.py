"""Measure detection on fresh campaigns: ours, the errors of autoencoders and common methods, in one run.

    python benchmarks/detection.py --seeds 5 --hours 4 --rival-seeds 5
    python benchmarks/detection.py --recorded DIR
    python benchmarks/detection.py --seeds 0 --recorded DIR     the bundled detector alone, in seconds

For each seed: a simulated campaign to train on, one twice as long to calibrate on, and two fresh ones twice as long to
test on: one in which two jobs of five are faulty and one without faults. The table shows the worst seed. Recordings
below DIR, from your own `twin campaign run --anomalies`, are scored in a second table.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.progress import Progress

from clustertwin.core.traces import Trace, Windows
from clustertwin.core.windows import cut
from clustertwin.telemetry.detection.bundled import bundled
from clustertwin.telemetry.detection.calibration import calibrate
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.models.model_store import StoredModel
from clustertwin.telemetry.models.training import TrainingSettings, fit
from clustertwin.telemetry.models.training_data import normal_windows
from clustertwin.telemetry.moments.moment import WINDOW_S, Moment, moments
from clustertwin.telemetry.recording import Recording, find
from clustertwin.telemetry.simulation.anomalies import available_anomalies
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate
from clustertwin.telemetry.studies.event_metrics import EventCounts, count_events
from clustertwin.telemetry.studies.reference.detection_section import cached_scores, of_view
from clustertwin.telemetry.studies.rival_detectors import RIVALS, model_error
from clustertwin.telemetry.studies.window_metrics import Scorer, ScorerMetrics, evaluate_scorers

OURS, SHIPPED = "clustertwin", "clustertwin, as shipped"
#: Autoencoders with a row for their error alone, and the epochs that each needs to beat the reference study's 0.0064.
MODELS = {"ae": 2, "vae": 2, "node-gnn-ae": 2, "job-gnn-ae": 2}
VALIDATION_S = 1800  # of the calibration campaign, to choose the epoch of those models
EVENTS_EVERY_S = 30
RECORDED_EVERY_S = 5


@dataclass(frozen=True, slots=True)
class Contest:
    """All detectors and scorers, fitted to the healthy campaigns of one seed."""

    detectors: dict[str, Detector]
    scorers: dict[str, Scorer]

    def assess(self, test: Iterator[tuple[Moment, Windows]]) -> dict[str, ScorerMetrics]:
        thresholds = {name: detector.threshold for name, detector in self.detectors.items()}
        return evaluate_scorers(self.scorers, test, thresholds=thresholds)

    def events(self, traces: list[Trace]) -> dict[str, EventCounts]:
        return {name: count_events(detector, traces, EVENTS_EVERY_S) for name, detector in self.detectors.items()}


def contest(seed: int, hours: float, rivals: bool) -> Contest:
    """Fit our detector, and with `rivals` the other methods."""
    learn = simulate(ClusterSettings(hours=hours), read_signatures(), 10_000 + seed)
    check = simulate(ClusterSettings(hours=2 * hours), read_signatures(), 20_000 + seed)
    cuts = [normal_windows(Windows.concat([cut(trace) for trace in traces])) for traces in (learn, check)]
    stored = StoredModel("linear", fit(*cuts, TrainingSettings(seed=seed, epochs=10)).model)
    train = [moment for moment, _ in moments(learn)]
    ours, shipped = calibrate(stored, (moment for moment, _ in moments(check)), learn=train), bundled()
    score = cached_scores(ours)
    scorers: dict[str, Scorer] = {
        OURS: lambda moment: score(moment).score,
        SHIPPED: lambda moment: shipped.score(moment).score,
        "only the model's error": lambda moment: score(moment).error,
        **{f"only {view}": of_view(score, i) for i, view in enumerate(ours.views) if view != "reconstruction"},
    }
    if rivals:
        few = cuts[1].take(np.flatnonzero(cuts[1].start_s < check[0].start_s + VALIDATION_S))
        for name, epochs in MODELS.items():
            fitted = fit(cuts[0], few, TrainingSettings(model=name, seed=seed, epochs=epochs))
            scorers[f"{name}, error"] = model_error(StoredModel(name, fitted.model))
        scorers |= {name: fit_rival(train, seed) for name, fit_rival in RIVALS.items()}
    return Contest({OURS: ours, SHIPPED: shipped}, scorers)


def bundled_alone() -> Contest:
    shipped = bundled()
    score = cached_scores(shipped)
    views = {f"only {view}": of_view(score, i) for i, view in enumerate(shipped.views)}
    return Contest({SHIPPED: shipped}, {SHIPPED: lambda moment: score(moment).score, **views})


def with_faults(seed: int, hours: float) -> list[Trace]:
    """The test campaign of a seed in which two jobs of five are faulty."""
    settings = ClusterSettings(hours=2 * hours, anomalies=available_anomalies(read_signatures()), anomaly_ratio=0.4)
    return simulate(settings, read_signatures(), 30_000 + seed)


def healthy(seed: int, hours: float) -> list[Trace]:
    return simulate(ClusterSettings(hours=2 * hours), read_signatures(), 40_000 + seed)


def recorded(roots: list[Path]) -> Iterator[tuple[Moment, Windows]]:
    """The labelled moments of every recording, from the first complete window on, because recorded jobs are short."""
    for directory in (directory for root in roots for directory in find(root)):
        recording = Recording.open(directory)
        traces = [recording.trace(node) for node in recording.nodes]
        yield from moments(traces, RECORDED_EVERY_S, first_s=recording.start_s + WINDOW_S)


def table(seeds: list[dict[str, ScorerMetrics]], own: bool = False) -> str:
    """The worst seed of each cell: ROC-AUC / recall at 0.1 % false positives, or with `own` at the own threshold."""
    anomalies = sorted({anomaly for seed in seeds for a in seed.values() for anomaly in a.anomalies})
    lines = ["| detector | " + " | ".join(anomalies) + " |", "|---" * (len(anomalies) + 1) + "|"]
    for name in {name: None for seed in seeds for name in seed}:
        cells = []
        for anomaly in anomalies:
            of_name = [
                seed[name].anomalies[anomaly] for seed in seeds if name in seed and anomaly in seed[name].anomalies
            ]
            recall = min((c.recall_at_threshold if own else c.recall for c in of_name), default=float("nan"))
            cells.append(f"{min(c.auc for c in of_name):.3f} / {recall:.2f}" if of_name else "")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def print_events(title: str, results: list[dict[str, EventCounts]]) -> None:
    """False events over all seeds, and of the worst seed."""
    for name in results[0]:
        of_name = [seed[name] for seed in results]
        false, days = sum(each.false_events for each in of_name), sum(each.node_days for each in of_name)
        worst = max(each.false_per_node_day for each in of_name)
        print(f"{title}, {name}: {false} false events in {days:.1f} node-days, worst seed {worst:.2f} per day", end="")
        there = sum(each.total for each in of_name)
        print(f"; {sum(each.detected for each in of_name)} of {there} anomalies detected" if there else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="The first seed.")
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--rival-seeds", type=int, default=1, help="The number of seeds for the other methods.")
    parser.add_argument("--recorded", type=Path, nargs="*", default=[], help="Directories of labelled recordings.")
    parser.add_argument("--json", type=Path, help="Write every cell of every seed to this file.")
    options = parser.parse_args()
    torch.set_num_threads(1)
    simulated, real, faulty, normal_events, rows = [], [], [], [], []
    with Progress() as bar:
        task = bar.add_task("seeds", total=options.seeds)
        for seed in range(options.first, options.first + options.seeds):
            fitted = contest(seed, options.hours, rivals=seed < options.first + options.rival_seeds)
            test = with_faults(seed, options.hours)
            simulated.append(fitted.assess(moments(test)))
            faulty.append(fitted.events(test))
            normal_events.append(fitted.events(healthy(seed, options.hours)))
            if options.recorded:
                real.append(fitted.assess(recorded(options.recorded)))
            for name, a in simulated[-1].items():
                cells = {k: [c.windows, c.auc, c.recall, c.recall_at_threshold] for k, c in a.anomalies.items()}
                rows.append({"seed": seed, "detector": name, "false_alarms": a.false_positive_rate, "cells": cells})
            bar.advance(task)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1))
    if simulated:
        print(table(simulated))
        for name in (OURS, SHIPPED):
            rates = [seed[name].false_positive_rate for seed in simulated]
            print(f"{name}: {np.mean(rates):.2%} of normal windows above the threshold, worst seed {max(rates):.2%}")
        print_events("with anomalies", faulty)
        print_events("healthy", normal_events)
    elif options.recorded:
        real.append(bundled_alone().assess(recorded(options.recorded)))
    if real:
        print(f"\nrecorded, ROC-AUC / recall at the detector's own threshold\n{table(real, own=True)}")
        bundled_only = real[0][SHIPPED]
        rate, count = bundled_only.false_positive_rate, bundled_only.normal_windows
        print(f"{SHIPPED}: {rate:.1%} of {count} normal windows above the threshold")


if __name__ == "__main__":
    main()
