"""Measure detection on fresh simulated campaigns: ours and what people use today, in the same run, seed by seed.

    python benchmarks/detection.py --seeds 5 --hours 4

For each seed: a campaign to learn from, one twice as long to calibrate on, one twice as long to test on, in which two
jobs of five go wrong. The worst seed stands in the table.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import Progress

from clustertwin.core.traces import Windows
from clustertwin.telemetry.campaign.simulation.anomalies import possible
from clustertwin.telemetry.campaign.simulation.cluster import simulate
from clustertwin.telemetry.campaign.simulation.demand import ClusterSettings
from clustertwin.telemetry.campaign.simulation.signature import read_signatures
from clustertwin.telemetry.detection.assessment import Assessment, Scorer, assess, count_events
from clustertwin.telemetry.detection.bundled import bundled
from clustertwin.telemetry.detection.detector import VIEWS, Detector, calibrate
from clustertwin.telemetry.detection.moment import Moment, moments
from clustertwin.telemetry.detection.rivals import RIVALS
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.gather import normal
from clustertwin.telemetry.models.store import Stored
from clustertwin.telemetry.training import Settings as Training
from clustertwin.telemetry.training import fit
from clustertwin.telemetry.windows import cut


def run(seed: int, hours: float, rivals: bool) -> tuple[dict[str, Assessment], dict[str, Any]]:
    """All scorers on one seed's fresh test campaign."""
    signatures = read_signatures()
    learn = simulate(ClusterSettings(hours=hours), signatures, 10_000 + seed)
    check = simulate(ClusterSettings(hours=2 * hours), signatures, 20_000 + seed)
    struck = ClusterSettings(hours=2 * hours, anomalies=possible(signatures), anomaly_ratio=0.4)
    test = simulate(struck, signatures, 30_000 + seed)
    cuts = [normal(Windows.concat([cut(trace) for trace in traces])) for traces in (learn, check)]
    stored = Stored("linear", fit(*cuts, Training(seed=seed, epochs=10)).model)
    train = [moment for moment, _ in moments(learn)]
    ours = calibrate(stored, (moment for moment, _ in moments(check)), learn=train)
    shipped = bundled()
    score = _once(ours)
    scorers: dict[str, Scorer] = {
        "clustertwin": lambda moment: score(moment).score,
        "clustertwin, as shipped": lambda moment: shipped.score(moment).score,
        "only the model's error": lambda moment: score(moment).error,
        **{f"only {view}": _view(score, i) for i, view in enumerate(VIEWS) if i},
    }
    if rivals:
        scorers |= {name: fit_rival(train, seed) for name, fit_rival in RIVALS.items()}
    thresholds = {"clustertwin": ours.threshold, "clustertwin, as shipped": shipped.threshold}
    events = count_events(ours, test)
    counted = {"false per node-day": events.false_per_node_day, "struck": events.struck, "found": events.found}
    return assess(scorers, moments(test), thresholds=thresholds), counted


def _once(detector: Detector) -> Callable[[Moment], Scores]:
    """The detector's scores of a moment, computed once however many ask."""
    last: dict[int, Scores] = {}

    def score(moment: Moment) -> Scores:
        if id(moment) not in last:
            last.clear()
            last[id(moment)] = detector.score(moment)
        return last[id(moment)]

    return score


def _view(score: Callable[[Moment], Scores], column: int) -> Scorer:
    return lambda moment: score(moment).surprise[:, column]


def table(found: list[dict[str, Assessment]]) -> str:
    """The worst seed of each cell: ROC-AUC / recall at 0.1 % false positives."""
    anomalies = sorted({anomaly for one in found for a in one.values() for anomaly in a.cells})
    lines = ["| detector | " + " | ".join(anomalies) + " |", "|---" * (len(anomalies) + 1) + "|"]
    for name in {name: None for one in found for name in one}:
        cells = []
        for anomaly in anomalies:
            mine = [one[name].cells[anomaly] for one in found if name in one and anomaly in one[name].cells]
            cells.append(f"{min(c.auc for c in mine):.3f} / {min(c.recall for c in mine):.2f}" if mine else "")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="The first seed.")
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--rival-seeds", type=int, default=1, help="How many of the seeds the rivals run on.")
    parser.add_argument("--json", type=Path, help="Write every cell of every seed here.")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found, rows = [], []
    with Progress() as bar:
        task = bar.add_task("seeds", total=options.seeds)
        for seed in range(options.first, options.first + options.seeds):
            one, events = run(seed, options.hours, rivals=seed < options.first + options.rival_seeds)
            found.append(one)
            for name, a in one.items():
                cells = {k: [c.windows, c.auc, c.recall, c.found] for k, c in a.cells.items()}
                rows.append({"seed": seed, "detector": name, "false_alarms": a.false_alarms, "cells": cells} | events)
            bar.advance(task)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1))
    print(table(found))
    for name in ("clustertwin", "clustertwin, as shipped"):
        rates = [one[name].false_alarms for one in found]
        print(f"{name}: {np.mean(rates):.2%} of normal windows above the one threshold, worst seed {max(rates):.2%}")
    print("events, worst seed:", {k: max(r[k] for r in rows) for k in ("false per node-day",)})


if __name__ == "__main__":
    main()
