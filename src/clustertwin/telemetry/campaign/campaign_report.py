"""Summarise a campaign: recordings -> windows per job type and split, mean ratios, and unmet expectations.

Windows are cut job by job from each job's first whole second, so that a job of 105 s gives one window of 100 s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clustertwin.core.traces import Windows
from clustertwin.core.windows import cut
from clustertwin.telemetry.campaign.catalogue import JOB_TYPES, Expectation, find_type
from clustertwin.telemetry.campaign.job_labels import FAILED
from clustertwin.telemetry.recording import Recording, find
from clustertwin.telemetry.simulation.signature import PEER


@dataclass(frozen=True, slots=True)
class JobTypeSummary:
    """The windows of one job type or anomaly, their mean ratios, and the expectations for them."""

    kind: str  # the job type, or the anomaly
    windows: dict[str, int]  # split -> count
    means: dict[str, float]  # channel -> mean ratio over all valid seconds
    expected: tuple[str, ...]
    unmet: tuple[str, ...]  # expectations that this host does not meet, with the measured mean


def job_windows(recording: Recording, length_s: int) -> Windows | None:
    """The windows of every job, cut from its start; None if no job is long enough."""
    parts = []
    for span in recording.spans:
        trace = recording.trace(span.node, math.ceil(span.start_s), math.floor(span.end_s))
        windows = cut(trace, length_s, campaign=recording.campaign, split=recording.split)
        parts.append(windows.take(np.isin(windows.cpu, span.cpus) & (windows.job == span.job)))
    return Windows.concat(parts) if any(len(part) for part in parts) else None


def summarise(out: Path, length_s: int = 100) -> list[JobTypeSummary]:
    """The table of a campaign directory, in the order of the catalogue."""
    parts = [windows for path in find(out) if (windows := job_windows(Recording.open(path), length_s)) is not None]
    return tabulate(Windows.concat(parts)) if parts else []


def tabulate(windows: Windows) -> list[JobTypeSummary]:
    """One row per job type and anomaly."""
    kinds = np.where(windows.anomaly == "", windows.job_type, windows.anomaly)
    return [_row(str(kind), windows.take(kinds == kind)) for kind in sorted(set(kinds), key=_catalogue_order)]


def _row(kind: str, windows: Windows) -> JobTypeSummary:
    seconds = windows.values[windows.valid]  # (second, channel)
    means = dict(zip(windows.schema.names, map(float, seconds.mean(axis=0)), strict=True))
    splits, counts = np.unique(windows.split, return_counts=True)
    expected = _expectations(kind)
    unmet = tuple(
        f"{expectation}, got {means[expectation.channel]:.2f}"
        for expectation in expected
        if not expectation.met(means[expectation.channel])
    )
    return JobTypeSummary(
        kind, dict(zip(map(str, splits), map(int, counts), strict=True)), means, tuple(map(str, expected)), unmet
    )


def _expectations(kind: str) -> tuple[Expectation, ...]:
    if kind == FAILED:
        return ()
    row = find_type(kind.removesuffix(PEER))
    return row.peer_expectations if kind.endswith(PEER) else row.expectations


def _catalogue_order(kind: str) -> tuple[int, str]:
    name = "mpi-N" if kind.startswith("mpi-") else kind.removesuffix(PEER)
    names = list(JOB_TYPES)
    return (names.index(name) if name in names else len(names), kind)
