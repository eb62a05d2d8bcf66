"""How long and how often to look: campaigns -> spectra per kind of job, a window length, what sampling costs.

The window is as long as the slowest thing that recurs: Welch's spectrum of each kind, the lowest of its dominant
frequencies. The interval is judged by what it leaves of the kinds' separation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require
from clustertwin.core.traces import Windows
from clustertwin.page import COLOURS, figure, svg
from clustertwin.telemetry.simulation.anomalies import family
from clustertwin.telemetry.studies.reference.section import Picture, Section, Table, spread
from clustertwin.telemetry.studies.reference.study_data import Data, kinds

SEGMENT_S = 512
INTERVALS_S = (1, 2, 5, 10, 20, 50)
DRAWS = 30
DRAWN = 400  # windows a draw
PROMINENCE_DB = 3.0
_STILL = 0.01  # a channel that moves less has no spectrum worth naming


@dataclass(frozen=True, slots=True)
class Spectrum:
    """Of one kind of job: mean density over its threads and channels, and the frequencies that stand out."""

    kind: str
    segments: int
    frequency_hz: NDArray[np.float64]
    density: NDArray[np.float64]
    dominant_hz: tuple[float, ...]  # strongest first


def spectra(data: Data) -> list[Spectrum]:
    """One spectrum for each kind of normal job that lasts long enough."""
    signal = require("scipy.signal", "models")
    found: dict[str, list[NDArray[np.float64]]] = {}
    for trace in (trace for campaign in data.train for trace in campaign):
        for span in trace.spans:
            first, last = (int(t - trace.start_s) for t in (np.ceil(span.start_s), span.end_s))
            rows = [trace.cpus.index(cpu) for cpu in span.cpus if cpu in trace.cpus]
            length = last - first
            if span.anomaly or length < SEGMENT_S or not trace.valid[rows, first:last].all():
                continue
            x = trace.values[rows, first:last, :3].astype(np.float64)  # (thread, second, channel)
            hz, density = signal.welch(x, nperseg=SEGMENT_S, axis=1, detrend="linear")
            moves = x.std(axis=1) >= _STILL  # (thread, channel)
            if moves.any():
                found.setdefault(family(span.job_type), []).append(density.swapaxes(1, 2)[moves])
    out = []
    for kind, parts in sorted(found.items()):
        density = np.concatenate(parts).mean(axis=0)
        out.append(Spectrum(kind, sum(map(len, parts)), hz, density, _dominant(hz, density)))
    return out


def _dominant(hz: NDArray[np.float64], density: NDArray[np.float64]) -> tuple[float, ...]:
    """Peaks that stand out from their neighbourhood, strongest first; the mean and what drifts are not among them."""
    signal = require("scipy.signal", "models")
    level_db = 10 * np.log10(density[1:] + 1e-12)
    peaks, about = signal.find_peaks(level_db, prominence=PROMINENCE_DB)
    order = np.argsort(-about["prominences"])
    return tuple(float(f) for f in hz[1:][peaks[order]])


def coarser(windows: Windows, interval_s: int) -> NDArray[np.float32]:
    """Windows as a sampler of this interval would have read them: means over it, (n, length / interval, channel)."""
    n, length, channels = windows.values.shape
    whole = length // interval_s
    return windows.values[:, : whole * interval_s].reshape(n, whole, interval_s, channels).mean(axis=2)


def silhouettes(windows: Windows, interval_s: int, rng: np.random.Generator) -> tuple[float, ...]:
    """Silhouette of the kinds in the first 16 principal components, for each draw of some windows."""
    metrics, decomposition = require("sklearn.metrics", "models"), require("sklearn.decomposition", "models")
    x, label = coarser(windows, interval_s)[..., :3].reshape(len(windows), -1), kinds(windows)
    scores = []
    for _ in range(DRAWS):
        rows = rng.choice(len(x), min(DRAWN, len(x)), replace=False)
        if len(set(label[rows])) < 2:
            continue
        z = decomposition.PCA(min(16, x.shape[1], len(rows)), svd_solver="covariance_eigh").fit_transform(x[rows])
        scores.append(float(metrics.silhouette_score(z, label[rows])))
    return tuple(scores)


def sampling(data: Data, seed: int = 0) -> Section:
    """The section: spectra and window length, PCA of windows, silhouette against sampling interval."""
    found = spectra(data)
    lowest = [(min(s.dominant_hz), s.kind) for s in found if s.dominant_hz]
    windows = data.normal("train")
    rng = np.random.default_rng(seed)
    by_interval = {i: silhouettes(windows, i, rng) for i in INTERVALS_S if i <= data.length_s // 2}
    spectral = Table(
        "Dominant frequencies",
        ("kind", "spectra", "dominant, Hz", "lowest, Hz", "window, s"),
        tuple(
            (
                s.kind,
                s.segments,
                ", ".join(f"{f:.3f}" for f in s.dominant_hz[:4]) or "none",
                f"{min(s.dominant_hz):.4f}" if s.dominant_hz else "",
                f"{1 / min(s.dominant_hz):.0f}" if s.dominant_hz else "",
            )
            for s in found
        ),
        f"Welch, segments of {SEGMENT_S} s; dominant is what stands {PROMINENCE_DB:.0f} dB out of its neighbourhood.",
    )
    intervals = Table(
        "Silhouette against sampling interval",
        ("interval, s", "silhouette", "draws"),
        tuple((i, spread(scores, 3), len(scores)) for i, scores in by_interval.items() if scores),
        f"{DRAWN} windows a draw, 16 principal components, no model.",
    )
    text = "No kind of job has a dominant frequency: nothing recurs."
    if not found:
        text = f"No job lasts {SEGMENT_S} s: too short for a spectrum."
    if lowest:
        hz, kind = min(lowest)
        text = (
            f"The slowest recurrence is that of {kind}: {hz:.4f} Hz, {1 / hz:.0f} s. "
            f"A window of {data.length_s} s {'holds' if data.length_s >= 1 / hz else 'does not hold'} it whole."
        )
    pictures = (_spectra_picture(found), _interval_picture(by_interval), _scatter_picture(windows, rng))
    return Section("sampling", "How long and how often to look", text, (spectral, intervals), pictures)


def _spectra_picture(found: list[Spectrum]) -> Picture:
    made, axes = figure(9, 3.6, 1, 1)
    for i, s in enumerate(found):
        axes[0, 0].loglog(s.frequency_hz[1:], s.density[1:], color=COLOURS[i % len(COLOURS)], label=s.kind)
    axes[0, 0].set(xlabel="Hz", ylabel="power per Hz")
    if found:
        axes[0, 0].legend(frameon=False, labelcolor="linecolor")
    return Picture("Spectra by kind of job", svg(made, "spectra"))


def _interval_picture(by_interval: dict[int, tuple[float, ...]]) -> Picture:
    made, axes = figure(6, 3, 1, 1)
    at = [i for i, scores in by_interval.items() if scores]
    mean = [np.mean(by_interval[i]) for i in at]
    axes[0, 0].errorbar(at, mean, yerr=[np.std(by_interval[i]) for i in at], marker="o", color=COLOURS[0], capsize=3)
    axes[0, 0].set(xscale="log", xlabel="sampling interval, s", ylabel="silhouette")
    axes[0, 0].set_xticks(at, [str(i) for i in at])
    return Picture("Silhouette against sampling interval", svg(made, "intervals"))


def _scatter_picture(windows: Windows, rng: np.random.Generator) -> Picture:
    rows = rng.choice(len(windows), min(1500, len(windows)), replace=False)
    x, label = windows.values[rows][..., :3].reshape(len(rows), -1), kinds(windows)[rows]
    z = require("sklearn.decomposition", "models").PCA(2, svd_solver="covariance_eigh").fit_transform(x)
    made, axes = figure(6, 4.2, 1, 1)
    for i, kind in enumerate(sorted(set(label.tolist()))):
        mine = z[label == kind]
        axes[0, 0].scatter(mine[:, 0], mine[:, 1], s=6, color=COLOURS[i % len(COLOURS)], label=kind, alpha=0.6)
    axes[0, 0].set(xlabel="first component", ylabel="second")
    axes[0, 0].legend(frameon=False, labelcolor="linecolor")
    return Picture("Windows, first two principal components", svg(made, "scatter"))
