"""What a campaign gave: recordings -> windows per job type and split, mean ratios per type, and whether they fit.

Windows are cut job by job, from each job's first whole second on, so that a job of 105 s gives one of 100 s.
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
class Row:
    """One kind of job: how many windows in each split, where its time went, and what it should have given."""

    kind: str  # the job type, or the anomaly
    windows: dict[str, int]  # split -> count
    means: dict[str, float]  # channel -> mean ratio over all valid seconds
    expected: tuple[str, ...]
    unmet: tuple[str, ...]  # expectations this host does not meet, with what it gave


def job_windows(recording: Recording, length_s: int = 100) -> Windows | None:
    """The windows of every job, cut from its own start; None if no job was long enough."""
    parts = []
    for span in recording.spans:
        trace = recording.trace(span.node, math.ceil(span.start_s), math.floor(span.end_s))
        windows = cut(trace, length_s, campaign=recording.campaign, split=recording.split)
        parts.append(windows.take(np.isin(windows.cpu, span.cpus) & (windows.job == span.job)))
    return Windows.concat(parts) if any(len(part) for part in parts) else None


def summarise(out: Path, length_s: int = 100) -> list[Row]:
    """The table of a campaign directory, in the catalogue's order."""
    parts = [windows for path in find(out) if (windows := job_windows(Recording.open(path), length_s)) is not None]
    return tabulate(Windows.concat(parts)) if parts else []


def tabulate(windows: Windows) -> list[Row]:
    """One row per job type and anomaly."""
    kinds = np.where(windows.anomaly == "", windows.job_type, windows.anomaly)
    return [_row(str(kind), windows.take(kinds == kind)) for kind in sorted(set(kinds), key=_place)]


def _row(kind: str, windows: Windows) -> Row:
    seconds = windows.values[windows.valid]  # (second, channel)
    means = dict(zip(windows.schema.names, map(float, seconds.mean(axis=0)), strict=True))
    splits, counts = np.unique(windows.split, return_counts=True)
    expected = _expected(kind)
    unmet = tuple(f"{each}, got {means[each.channel]:.2f}" for each in expected if not each.met(means[each.channel]))
    return Row(
        kind, dict(zip(map(str, splits), map(int, counts), strict=True)), means, tuple(map(str, expected)), unmet
    )


def _expected(kind: str) -> tuple[Expectation, ...]:
    if kind == FAILED:
        return ()
    row = find_type(kind.removesuffix(PEER))
    return row.expect_of_peers if kind.endswith(PEER) else row.expect


def _place(kind: str) -> tuple[int, str]:
    name = "mpi-N" if kind.startswith("mpi-") else kind.removesuffix(PEER)
    names = list(JOB_TYPES)
    return (names.index(name) if name in names else len(names), kind)
