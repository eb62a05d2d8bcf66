"""Window length and sampling interval: campaigns -> spectra of each kind of job, silhouette at each interval.

The window should hold one period of the lowest dominant frequency in Welch's spectra. A sampling interval is evaluated
by the separation of the kinds that remains.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require
from clustertwin.core.traces import Windows
from clustertwin.page import COLOURS, figure, svg
from clustertwin.telemetry.simulation.anomalies import family
from clustertwin.telemetry.studies.reference.section import Picture, Section, Table, mean_and_deviation, scatter_by_kind
from clustertwin.telemetry.studies.reference.study_data import StudyData, job_kinds

SEGMENT_S = 512
INTERVALS_S = (1, 2, 5, 10, 20, 50)
DRAWS = 30
WINDOWS_PER_DRAW = 400
PROMINENCE_DB = 3.0
_CONSTANT = 0.01  # channels with a smaller standard deviation are left out


@dataclass(frozen=True, slots=True)
class JobSpectrum:
    """The mean power spectral density of one kind of job over threads and channels, and its dominant frequencies."""

    kind: str
    segments: int
    frequency_hz: NDArray[np.float64]
    density: NDArray[np.float64]
    dominant_hz: tuple[float, ...]  # strongest first


def job_spectra(data: StudyData) -> list[JobSpectrum]:
    """One spectrum for each kind of normal job that is long enough."""
    signal = require("scipy.signal", "models")
    densities: dict[str, list[NDArray[np.float64]]] = {}
    for trace in (trace for campaign in data.train for trace in campaign):
        for span in trace.spans:
            first, last = (int(t - trace.start_s) for t in (np.ceil(span.start_s), span.end_s))
            rows = [trace.cpus.index(cpu) for cpu in span.cpus if cpu in trace.cpus]
            length = last - first
            if span.anomaly or length < SEGMENT_S or not trace.valid[rows, first:last].all():
                continue
            x = trace.values[rows, first:last, :3].astype(np.float64)  # (thread, second, channel)
            hz, density = signal.welch(x, nperseg=SEGMENT_S, axis=1, detrend="linear")
            varying = x.std(axis=1) >= _CONSTANT  # (thread, channel)
            if varying.any():
                densities.setdefault(family(span.job_type), []).append(density.swapaxes(1, 2)[varying])
    spectra = []
    for kind, parts in sorted(densities.items()):
        density = np.concatenate(parts).mean(axis=0)
        spectra.append(JobSpectrum(kind, sum(map(len, parts)), hz, density, _dominant(hz, density)))
    return spectra


def _dominant(hz: NDArray[np.float64], density: NDArray[np.float64]) -> tuple[float, ...]:
    """Frequencies of prominent peaks, strongest first, without frequency zero."""
    signal = require("scipy.signal", "models")
    level_db = 10 * np.log10(density[1:] + 1e-12)
    peaks, properties = signal.find_peaks(level_db, prominence=PROMINENCE_DB)
    order = np.argsort(-properties["prominences"])
    return tuple(float(f) for f in hz[1:][peaks[order]])


def resample(windows: Windows, interval_s: int) -> NDArray[np.float32]:
    """Windows with a longer sampling interval, as means over it: (n, length / interval, channel)."""
    n, length, channels = windows.values.shape
    samples = length // interval_s
    return windows.values[:, : samples * interval_s].reshape(n, samples, interval_s, channels).mean(axis=2)


def silhouettes(windows: Windows, interval_s: int, rng: np.random.Generator) -> tuple[float, ...]:
    """Silhouette of the kinds in the first 16 principal components, for each random draw of windows."""
    metrics, decomposition = require("sklearn.metrics", "models"), require("sklearn.decomposition", "models")
    x, label = resample(windows, interval_s)[..., :3].reshape(len(windows), -1), job_kinds(windows)
    scores = []
    for _ in range(DRAWS):
        rows = rng.choice(len(x), min(WINDOWS_PER_DRAW, len(x)), replace=False)
        if len(set(label[rows])) < 2:
            continue
        z = decomposition.PCA(min(16, x.shape[1], len(rows)), svd_solver="covariance_eigh").fit_transform(x[rows])
        scores.append(float(metrics.silhouette_score(z, label[rows])))
    return tuple(scores)


def sampling_section(data: StudyData, seed: int) -> Section:
    """The section: spectra and window length, PCA of windows, silhouette against sampling interval."""
    spectra = job_spectra(data)
    lowest = [(min(s.dominant_hz), s.kind) for s in spectra if s.dominant_hz]
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
            for s in spectra
        ),
        f"Welch's method with segments of {SEGMENT_S} s. A dominant frequency is a peak with a prominence of at least "
        f"{PROMINENCE_DB:.0f} dB.",
    )
    intervals = Table(
        "Silhouette against sampling interval",
        ("interval, s", "silhouette", "draws"),
        tuple((i, mean_and_deviation(scores, 3), len(scores)) for i, scores in by_interval.items() if scores),
        f"{WINDOWS_PER_DRAW} random windows per draw, 16 principal components, no model.",
    )
    text = "No kind of job has a dominant frequency."
    if not spectra:
        text = f"All jobs are too short for a spectrum, which needs {SEGMENT_S} s."
    if lowest:
        hz, kind = min(lowest)
        text = (
            f"The lowest dominant frequency is that of {kind}: {hz:.4f} Hz, a period of {1 / hz:.0f} s. "
            f"A window of {data.length_s} s {'holds' if data.length_s >= 1 / hz else 'does not hold'} a full period."
        )
    pictures = [_spectra_picture(spectra), _scatter_picture(windows, rng)]
    if intervals.rows:  # a single kind of job has no silhouette
        pictures.insert(1, _interval_picture(by_interval))
    tables = tuple(table for table in (spectral, intervals) if table.rows)
    return Section("sampling", "Window length and sampling interval", text, tables, tuple(pictures))


def _spectra_picture(spectra: list[JobSpectrum]) -> Picture:
    drawing, axes = figure(9, 3.6, 1, 1)
    for i, s in enumerate(spectra):
        axes[0, 0].loglog(s.frequency_hz[1:], s.density[1:], color=COLOURS[i % len(COLOURS)], label=s.kind)
    axes[0, 0].set(xlabel="frequency, Hz", ylabel="power per Hz")
    if spectra:
        axes[0, 0].legend(frameon=False, labelcolor="linecolor")
    return Picture("Spectra by kind of job", svg(drawing, "spectra"))


def _interval_picture(by_interval: dict[int, tuple[float, ...]]) -> Picture:
    drawing, axes = figure(6, 3, 1, 1)
    at = [i for i, scores in by_interval.items() if scores]
    mean = [np.mean(by_interval[i]) for i in at]
    axes[0, 0].errorbar(at, mean, yerr=[np.std(by_interval[i]) for i in at], marker="o", color=COLOURS[0], capsize=3)
    axes[0, 0].set(xscale="log", xlabel="sampling interval, s", ylabel="silhouette")
    axes[0, 0].set_xticks(at, [str(i) for i in at])
    return Picture("Silhouette against sampling interval", svg(drawing, "intervals"))


def _scatter_picture(windows: Windows, rng: np.random.Generator) -> Picture:
    rows = rng.choice(len(windows), min(1500, len(windows)), replace=False)
    x, label = windows.values[rows][..., :3].reshape(len(rows), -1), job_kinds(windows)[rows]
    z = require("sklearn.decomposition", "models").PCA(2, svd_solver="covariance_eigh").fit_transform(x)
    drawing, axes = figure(6, 4.2, 1, 1)
    scatter_by_kind(axes[0, 0], z[:, 0], z[:, 1], label)
    axes[0, 0].set(xlabel="first component", ylabel="second component")
    return Picture("Windows in their first two principal components", svg(drawing, "scatter"))
