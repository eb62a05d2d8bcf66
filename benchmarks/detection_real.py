"""Measure detection on recorded data: a Spark cluster, and servers with anomalies labelled by experts.

    python benchmarks/detection_real.py DATA

DATA holds spark-cluster/*.npz (t, ratio) and servers/omi-*.npz (train, test, label). The Spark cluster has no known
faults, so every event counts as false. Its files overlap, so they are joined by second and split by day. For the
servers the table shows ROC-AUC and AUC-PR over samples, without point adjustment.
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
from sklearn.metrics import average_precision_score

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
from clustertwin.telemetry.studies.event_metrics import match_events, replay, track_events
from clustertwin.telemetry.studies.window_metrics import roc_auc
from recorded_campaigns import spark_days

Array = NDArray[np.float64]
#: a normal series and one to score -> scores
Method = Callable[[Array, Array], Array]
_LENGTH = 20  # samples in the statistics of the simple methods


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
            results[name].append((roc_auc(score[~label], score[label]), average_precision_score(label, score)))
    print("| ROC-AUC / AUC-PR | mean | " + " | ".join(path.stem for path in paths) + " |")
    print("|---" * (len(paths) + 2) + "|")
    for name, cells in results.items():
        area, precision = np.mean(cells, axis=0)
        print(f"| {name} | {area:.3f} / {precision:.3f} | " + " | ".join(f"{a:.2f} / {p:.2f}" for a, p in cells) + " |")


def spark(data: Path) -> None:
    """The last day is judged by a detector of the first two, and every day by the shipped one."""
    first, second, last = spark_days(data / "spark-cluster")
    cases = {
        "as shipped, all days": (bundled(), [first, second, last]),
        "as shipped, last day": (bundled(), [last]),
        "trained on the first day, calibrated on the second; last day": (trained([first, second]), [last]),
    }
    print("| detector | node-days | events | per node-day | windows above the threshold | thread-hours in events |")
    print("|---|---|---|---|---|---|")
    for title, (detector, days) in cases.items():
        node_days, events, above, windows, thread_hours = 0.0, 0, 0, 0, 0.0
        for day in track(days, title):
            scored = list(replay(detector, day, stride_s=10))
            counted = match_events(track_events(scored, detector.threshold), day)
            node_days, events = node_days + counted.node_days, events + counted.false_events
            thread_hours += sum((e.seen_s - e.onset_s) * e.threads for e in counted.false) / 3600
            for _, scores in scored:
                known = np.isfinite(scores.score)
                above, windows = (
                    above + int((scores.score[known] > detector.threshold).sum()),
                    windows + int(known.sum()),
                )
        share = 100 * above / windows
        print(
            f"| {title} | {node_days:.2f} | {events} | {events / node_days:.1f} | {share:.2f} % | {thread_hours:.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    servers(options.data)
    spark(options.data)


if __name__ == "__main__":
    main()
