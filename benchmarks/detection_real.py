"""Measure detection on recorded data: a Spark cluster, and servers with anomalies labelled by experts.

    python benchmarks/detection_real.py DATA

DATA holds spark-cluster/*.npz (t, ratio) and servers/omi-*.npz (train, test, label). The Spark cluster has no known
faults, so every event counts as false. For the servers the table shows ROC-AUC and AUC-PR over samples, without point
adjustment.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import track

from clustertwin.core.channels import CPU
from clustertwin.core.traces import Trace, Windows
from clustertwin.core.windows import cut
from clustertwin.telemetry.detection.bundled import bundled
from clustertwin.telemetry.detection.calibration import calibrate
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.metric_series import fit_series
from clustertwin.telemetry.models.model_store import StoredModel
from clustertwin.telemetry.models.training import TrainingSettings, fit
from clustertwin.telemetry.models.training_data import normal_windows
from clustertwin.telemetry.moments.moment import moments
from clustertwin.telemetry.studies.event_metrics import count_events
from clustertwin.telemetry.studies.window_metrics import average_precision, roc_auc

Array = NDArray[np.float64]
#: a normal series and one to score -> scores
Method = Callable[[Array, Array], Array]
_LENGTH = 20  # samples in the statistics of the simple methods


def read_spark(path: Path) -> list[Trace]:
    """A trace for each node; missing seconds are invalid."""
    real = np.load(path)
    second = np.rint(real["t"] - np.floor(real["t"][0])).astype(np.intp)
    traces = []
    for node, ratio in enumerate(np.clip(real["ratio"].astype(np.float32), 0, 1)):  # (cpu, time, mode)
        total = ratio.sum(-1)
        known = np.isfinite(total) & (total > 0.5)
        values = np.zeros((len(ratio), second[-1] + 1, 4), np.float32)
        valid = np.zeros(values.shape[:2], np.bool_)
        values[:, second] = np.where(known[..., None], ratio / np.where(known, total, 1)[..., None], 0)
        valid[:, second] = known
        traces.append(Trace(f"n{node}", tuple(range(len(ratio))), int(real["t"][0]), CPU, values, valid))
    return traces


def trained(recordings: list[list[Trace]]) -> Detector:
    """A detector trained on the first recording and calibrated on the second."""
    windows = [normal_windows(Windows.concat([cut(trace) for trace in traces])) for traces in recordings]
    stored = StoredModel("linear", fit(windows[0], windows[1], TrainingSettings(epochs=10)).model)
    learn, check = ([moment for moment, _ in moments(traces, every_s=50)] for traces in recordings)
    return calibrate(stored, check, learn=learn)


def _statistics(series: Array) -> Array:
    """(sample, metric) -> means and deviations over the last samples."""
    padded = np.concatenate([np.repeat(series[:1], _LENGTH - 1, axis=0), series])
    windows = np.lib.stride_tricks.sliding_window_view(padded, _LENGTH, axis=0)
    return np.concatenate([windows.mean(-1), windows.std(-1)], axis=1)


def ours(train: Array, test: Array) -> Array:
    return fit_series(train).score(test, before=train)


def five_neighbours(train: Array, test: Array) -> Array:
    from sklearn.neighbors import NearestNeighbors

    return np.asarray(NearestNeighbors(n_neighbors=5).fit(_statistics(train)).kneighbors(_statistics(test))[0].mean(1))


def isolation_forest(train: Array, test: Array) -> Array:
    from sklearn.ensemble import IsolationForest

    return np.asarray(-IsolationForest(random_state=0).fit(_statistics(train)).score_samples(_statistics(test)))


def pca_error(train: Array, test: Array) -> Array:
    a, b = _statistics(train), _statistics(test)
    mean, spread = a.mean(0), a.std(0) + 1e-6
    axes = np.linalg.svd((a - mean) / spread, full_matrices=False)[2][:8]
    rest = (b - mean) / spread
    return np.asarray(((rest - rest @ axes.T @ axes) ** 2).mean(1))


def pyod_autoencoder(train: Array, test: Array) -> Array:
    from pyod.models.auto_encoder import AutoEncoder

    model: Any = AutoEncoder(random_state=0, verbose=0, device="cpu").fit(_statistics(train))
    return np.asarray(model.decision_function(_statistics(test)))


METHODS: dict[str, Method] = {
    "clustertwin": ours,
    "5 nearest neighbours": five_neighbours,
    "isolation forest": isolation_forest,
    "PCA error": pca_error,
    "PyOD autoencoder": pyod_autoencoder,
}


def servers(data: Path) -> None:
    paths = sorted(data.glob("servers/omi-*.npz"))
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in METHODS}
    for path in track(paths, "servers"):
        real = np.load(path)
        train, test, label = real["train"].astype(float), real["test"].astype(float), real["label"] > 0
        for name, method in METHODS.items():
            score = method(train, test)
            results[name].append((roc_auc(score[~label], score[label]), average_precision(label, score)))
    print("| ROC-AUC / AUC-PR | mean | " + " | ".join(path.stem for path in paths) + " |")
    print("|---" * (len(paths) + 2) + "|")
    for name, cells in results.items():
        area, precision = np.mean(cells, axis=0)
        print(f"| {name} | {area:.3f} / {precision:.3f} | " + " | ".join(f"{a:.2f} / {p:.2f}" for a, p in cells) + " |")


def spark(data: Path) -> None:
    recordings = {path.stem: read_spark(path) for path in sorted(data.glob("spark-cluster/*.npz"))}
    names = list(recordings)
    detectors = {
        "as shipped": (bundled(), names),
        f"trained on {names[0]} and {names[1]}": (trained([recordings[name] for name in names[:2]]), names[2:]),
    }
    for title, (detector, tested) in detectors.items():
        counts = {name: count_events(detector, recordings[name]) for name in track(tested, title)}
        days = sum(count.node_days for count in counts.values())
        false = sum(count.false_events for count in counts.values())
        print(f"{title}: {false} events in {days:.2f} node-days, {false / days:.1f} per node-day;", end=" ")
        print(", ".join(f"{name} {count.false_events}" for name, count in counts.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    servers(options.data)
    spark(options.data)


if __name__ == "__main__":
    main()
