"""Fit the signatures of all kinds of threads in recorded campaigns: recordings -> `Signatures`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from clustertwin.core.errors import InputError
from clustertwin.core.traces import Trace
from clustertwin.telemetry.campaign.fitting.fit_barrier import fit_barrier
from clustertwin.telemetry.campaign.fitting.fit_signature import fit
from clustertwin.telemetry.campaign.fitting.job_excerpts import JobExcerpt, take_excerpts
from clustertwin.telemetry.campaign.jobs.mpi import STEP_S
from clustertwin.telemetry.recording import Recording, find
from clustertwin.telemetry.simulation.anomalies import ANOMALIES, family
from clustertwin.telemetry.simulation.signature import IDLE, Signatures


def open_recordings(paths: Iterable[Path]) -> list[Recording]:
    """Every recording at or below these directories."""
    directories = [directory for path in paths for directory in find(path)]
    if not directories:
        raise InputError(", ".join(map(str, paths)) or "fit", "no recordings found")
    return [Recording.open(directory) for directory in directories]


def traces_of(recordings: Iterable[Recording]) -> Iterator[Trace]:
    """The complete trace of every node."""
    for recording in recordings:
        yield from (recording.trace(node) for node in recording.nodes)


def fit_signatures(excerpts: Iterable[JobExcerpt], provenance: dict[str, Any], seed: int = 0) -> Signatures:
    """One signature for each kind of thread, except anomalies that follow from the barrier model of MPI jobs.

    The barrier model is fitted to all normal MPI jobs.
    """
    kinds: dict[tuple[str, str], list[JobExcerpt]] = {}
    for excerpt in excerpts:
        anomaly = excerpt.anomaly
        if not anomaly or (anomaly in ANOMALIES and ANOMALIES[anomaly].effect is None):
            kinds.setdefault((excerpt.job_type, anomaly), []).append(excerpt)
    if (IDLE, "") not in kinds:
        recorded = ", ".join(sorted({job_type for job_type, _ in kinds})) or "nothing"
        raise InputError("fit", f"no idle time was recorded; job types in the recordings: {recorded}")
    mpi = [
        excerpt
        for (job_type, anomaly), same in kinds.items()
        for excerpt in same
        if family(job_type) == "mpi" and not anomaly
    ]
    return Signatures(
        {kind: fit(same, seed, grows=_grows(kind[1])) for kind, same in sorted(kinds.items())},
        fit_barrier(mpi, STEP_S, seed) if mpi else None,
        provenance,
    )


def fit_recordings(paths: Iterable[Path], provenance: dict[str, Any], seed: int) -> Signatures:
    """The signatures of every recording at or below these directories."""
    recordings = open_recordings(paths)
    about = {"campaigns": sorted({r.campaign for r in recordings}), "thread_s": _thread_s(recordings), **provenance}
    return fit_signatures(take_excerpts(traces_of(recordings)), about, seed)


def _grows(anomaly: str) -> bool:
    return bool(anomaly) and ANOMALIES[anomaly].grows


def _thread_s(recordings: list[Recording]) -> int:
    return sum((r.end_s - r.start_s) * sum(map(len, r.nodes.values())) for r in recordings)
