"""Recognise programs without their names on recorded runs: embeddings and statistics -> accuracy with an unknown class.

    python benchmarks/recognition.py data/zoo

Only healthy seconds are used, without the first 30 s of a run. Seconds 30 to 90 are learnt, those from 90 s to the
fault are judged, in windows of 30 s every 5 s; no second is on both sides. Of the ten programs of a half two at a time
are not learnt, so every program is unknown once. The least confidence is chosen on the half for choosing and used on
both. There is one run of each program: what is measured is whether a run is recognised a minute later, which is easier
than another run of the same program.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch
from numpy.typing import NDArray

from clustertwin.core import files
from clustertwin.core.channels import CPU
from clustertwin.core.traces import Windows
from clustertwin.telemetry.campaign.zoo.zoo_data import ZooRun, load_zoo
from clustertwin.telemetry.detection.bundled import bundled
from clustertwin.telemetry.models.batches import group_windows
from clustertwin.telemetry.models.contract import Autoencoder
from clustertwin.telemetry.models.training import TrainingSettings, fit, infer, settings_for_length
from clustertwin.telemetry.studies.recognition import (
    UNKNOWN,
    Guess,
    Recogniser,
    judge,
    least_confidence,
    nearest_centroid,
    random_forest,
)
from zoo import chosen_half

Array = NDArray[np.float64]
START_S, LEARN_S, LENGTH_S, STRIDE_S = 30, 90, 30, 5
LEFT_OUT = 2  # programs of a fold that are not learnt
ARCHITECTURES = ("linear", "ae", "vae", "patch")
RECOGNISERS: dict[str, Recogniser] = {"nearest centroid": nearest_centroid, "random forest": random_forest}


@dataclass(frozen=True, slots=True)
class Pieces:
    """Windows of one run: the thread's channels, and those of its cgroup."""

    program: str
    thread: NDArray[np.float32]  # (window, second, channel)
    job: NDArray[np.float32]  # (window, second, channel)


def pieces_of(run: ZooRun, first_s: int, last_s: int, stride_s: int = STRIDE_S) -> Pieces:
    """The windows that lie within some seconds of a run."""
    starts = range(first_s, last_s - LENGTH_S + 1, stride_s)
    of_job = run.trace.job_channels
    assert of_job is not None
    return Pieces(
        run.program,
        np.stack([run.trace.values[0, start : start + LENGTH_S] for start in starts]),
        np.nan_to_num(np.stack([of_job.values[0, start : start + LENGTH_S] for start in starts])),
    )


def statistics(values: NDArray[np.float32]) -> Array:
    """The eleven statistics of Taxonomist: (window, second, channel) -> (window, 11 × channel)."""
    x = values.astype(np.float64)
    mean, std = x.mean(1), x.std(1)
    z = (x - mean[:, None]) / (std[:, None] + 1e-9)
    levels = np.percentile(x, (5, 25, 50, 75, 95), axis=1)
    return np.concatenate([x.min(1), x.max(1), mean, std, (z**3).mean(1), (z**4).mean(1), *levels], axis=1)


def windows_of(pieces: Sequence[Pieces]) -> Windows:
    values = np.concatenate([each.thread for each in pieces])
    n, blank = len(values), np.full(len(values), "")
    job = np.concatenate([np.full(len(each.thread), each.program) for each in pieces])
    cpu = np.zeros(n, np.int32)
    return Windows(
        CPU, values, np.ones(values.shape[:2], np.bool_), np.arange(n), blank, cpu, job, job, blank, blank, blank
    )


def embed(model: Autoencoder, pieces: Sequence[Pieces]) -> Array:
    """(window, latent)"""
    windows = windows_of(pieces)
    length = model.config.shape.length
    if length > LENGTH_S:  # the bundled model reads 100 s: the window is repeated
        times = -(-length // LENGTH_S)
        values = np.tile(windows.values, (1, times, 1))[:, :length]
        windows = Windows(**{**{name: getattr(windows, name) for name in windows.__slots__}, "values": values,
                             "valid": np.ones(values.shape[:2], np.bool_)})  # fmt: skip
    return infer(model, group_windows(windows, model.graph, model.config.shape))[0].numpy().astype(np.float64)


Features = Callable[[Sequence[Pieces]], Array]


def features_of(learnt: Sequence[ZooRun]) -> dict[str, Features]:
    """Every set of features; those of a trained model see the windows of the programs that are learnt."""

    def of_thread(pieces: Sequence[Pieces]) -> NDArray[np.float32]:
        return np.concatenate([each.thread for each in pieces])

    def of_both(pieces: Sequence[Pieces]) -> NDArray[np.float32]:
        return np.concatenate([np.concatenate([each.thread, each.job], axis=2) for each in pieces])

    features: dict[str, Features] = {
        "mean channels of the thread (trivial)": lambda pieces: of_thread(pieces).mean(1, dtype=np.float64),
        "statistics of the thread": lambda pieces: statistics(of_thread(pieces)),
        "mean channels of thread and cgroup": lambda pieces: of_both(pieces).mean(1, dtype=np.float64),
        "statistics of thread and cgroup (Taxonomist)": lambda pieces: statistics(of_both(pieces)),
        "embedding, bundled model": lambda pieces: embed(bundled().stored.model, pieces),
    }
    dense = windows_of([pieces_of(run, START_S, LEARN_S, 1) for run in learnt])
    even = np.arange(len(dense)) % 2 == 0
    for name in ARCHITECTURES:
        settings = settings_for_length(TrainingSettings(model=name, epochs=60), LENGTH_S)
        model = fit(dense.take(even), dense.take(~even), settings).model
        features[f"embedding, {name} trained on the learnt seconds"] = lambda pieces, model=model: embed(model, pieces)
    return features


Folds = dict[tuple[str, str], list[tuple[NDArray[np.str_], Guess]]]


def guesses_of(runs: Sequence[ZooRun]) -> Folds:
    """(features, recogniser) -> the true names and the guesses of every fold."""
    out: Folds = {}
    for first in range(len(runs) // LEFT_OUT):
        unknown = {run.program for run in runs[first :: len(runs) // LEFT_OUT]}
        learnt = [run for run in runs if run.program not in unknown]
        known = [pieces_of(run, START_S, LEARN_S) for run in learnt]
        judged = [pieces_of(run, LEARN_S, int(run.phases[0].onset_s - run.trace.start_s)) for run in runs]
        names = np.concatenate([np.full(len(each.thread), each.program) for each in known])
        true = [np.full(len(each.thread), UNKNOWN if each.program in unknown else each.program) for each in judged]
        for features, measure in features_of(learnt).items():
            x, y = measure(known), measure(judged)
            for recogniser, recognise in RECOGNISERS.items():
                guess = recognise(x, names, y)
                out.setdefault((features, recogniser), []).append((np.concatenate(true), guess))
    return out


def rows_of(select: Folds, report: Folds) -> list[dict[str, Any]]:
    rows = []
    for key, folds in select.items():
        least = least_confidence([true for true, _ in folds], [guess for _, guess in folds])
        row: dict[str, Any] = {"features": key[0], "recogniser": key[1], "least_confidence": least}
        for half, chosen in (("select", folds), ("report", report[key])):
            said = np.concatenate([guess.named(least) for _, guess in chosen])
            row[half] = asdict(judge(np.concatenate([true for true, _ in chosen]), said))
        rows.append(row)
    return rows


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    for half in ("select", "report"):
        print(f"\nrecorded: {half}, {rows[0][half]['windows']} windows judged")
        print("| features | recogniser | accuracy | macro-F1 | unknown called unknown | known named rightly |")
        print("|---|---|---|---|---|---|")
        for row in sorted(rows, key=lambda row: -row[half]["macro_f1"]):
            got = row[half]
            print(
                f"| {row['features']} | {row['recogniser']} | {got['accuracy']:.3f} | {got['macro_f1']:.3f} "
                f"| {got['unknown_recall']:.3f} | {got['known_accuracy']:.3f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", help="a directory of raw runs; default: the data package")
    parser.add_argument("--json", type=Path, help="write the rows to this file too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs = list(load_zoo(options.data))
    halves = {half: guesses_of(chosen_half(runs, half)) for half in ("select", "report")}
    rows = rows_of(halves["select"], halves["report"])
    print_table(rows)
    if options.json:
        files.write(options.json, orjson.dumps(rows, option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    main()
