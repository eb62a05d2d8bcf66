"""Fit every signature that recorded campaigns can give: recordings -> `Signatures`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from clustertwin.core.errors import InputError
from clustertwin.core.traces import Trace
from clustertwin.telemetry.campaign.fitting.fit_barrier import fit_barrier
from clustertwin.telemetry.campaign.fitting.fit_signature import fit
from clustertwin.telemetry.campaign.fitting.recorded_bouts import Bout, take
from clustertwin.telemetry.campaign.jobs.mpi import STEP_S
from clustertwin.telemetry.recording import Recording, find
from clustertwin.telemetry.simulation.anomalies import ANOMALIES, family
from clustertwin.telemetry.simulation.signature import IDLE, Signatures


def open_recordings(paths: Iterable[Path]) -> list[Recording]:
    """Every recording at or below these directories."""
    directories = [directory for path in paths for directory in find(path)]
    if not directories:
        raise InputError(", ".join(map(str, paths)) or "fit", "no recording here")
    return [Recording.open(directory) for directory in directories]


def traces_of(recordings: Iterable[Recording]) -> Iterator[Trace]:
    """Node after node, whole."""
    for recording in recordings:
        yield from (recording.trace(node) for node in recording.nodes)


def fit_signatures(bouts: Iterable[Bout], provenance: dict[str, Any], seed: int = 0) -> Signatures:
    """One signature per kind of thread that is drawn from its recording; MPI's barrier from every healthy MPI job."""
    kinds: dict[tuple[str, str], list[Bout]] = {}
    for bout in bouts:
        if not bout.anomaly or (bout.anomaly in ANOMALIES and ANOMALIES[bout.anomaly].effect is None):
            kinds.setdefault((bout.job_type, bout.anomaly), []).append(bout)
    if (IDLE, "") not in kinds:
        raise InputError(
            "fit", f"no idle time of {', '.join(sorted({t for t, _ in kinds})) or 'anything'} was recorded"
        )
    mpi = [bout for (name, anomaly), same in kinds.items() for bout in same if family(name) == "mpi" and not anomaly]
    return Signatures(
        {kind: fit(same, seed, grows=_grows(kind[1])) for kind, same in sorted(kinds.items())},
        fit_barrier(mpi, STEP_S, seed) if mpi else None,
        provenance,
    )


def fit_recordings(paths: Iterable[Path], provenance: dict[str, Any], seed: int = 0) -> Signatures:
    """The signatures of every recording at or below these directories."""
    recordings = open_recordings(paths)
    about = {"campaigns": sorted({r.campaign for r in recordings}), "thread_s": _thread_s(recordings), **provenance}
    return fit_signatures(take(traces_of(recordings)), about, seed)


def _grows(anomaly: str) -> bool:
    return bool(anomaly) and ANOMALIES[anomaly].grows


def _thread_s(recordings: list[Recording]) -> int:
    return sum((r.end_s - r.start_s) * sum(map(len, r.nodes.values())) for r in recordings)
