"""Load the data package: a folder of raw runs -> traces with labels, one run after the other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clustertwin.core.errors import RecordingError
from clustertwin.core.traces import Trace
from clustertwin.telemetry.campaign.zoo.raw_run import SUFFIX, RawRun, program_of, read_raw_run, run_name
from clustertwin.telemetry.campaign.zoo.raw_trace import trace_of
from clustertwin.telemetry.campaign.zoo.recorded_look import RecordedLook

MOST_FOREIGN = 0.02  # of the healthy CPU time; a run with more is marked
_PACKAGE = Path(__file__).parents[5] / "data" / "zoo"


@dataclass(frozen=True, slots=True)
class FaultPhase:
    """A fault and the seconds of the clock in which it was imposed."""

    fault: str
    cause: str
    onset_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class ZooRun:
    """One run of a program. The seconds before the first onset are healthy."""

    name: str
    program: str
    kind: str  # serial, threads or MPI
    version: str
    trace: Trace
    phases: tuple[FaultPhase, ...]
    foreign: float  # CPU time of other work on the recorded CPUs, as a part of the healthy time
    raw: RawRun
    looks: tuple[RecordedLook, ...] = ()  # at the job's processes; runs of format 1 have none

    @property
    def is_disturbed(self) -> bool:
        return self.foreign > MOST_FOREIGN


def zoo_run_of(raw: RawRun, keep_shared: bool = False) -> ZooRun:
    labels = raw.labels
    phases = tuple(
        FaultPhase(each["fault"], each["cause"], each["onset_s"], each["end_s"])
        for each in labels["imposed"]
        if "error" not in each
    )
    name, foreign = (
        run_name(labels["program"], labels["number"], len(labels["cpus"])),
        labels["foreign_s"] / max(labels["healthy_cpu_s"], 1e-9),
    )
    program, kind, version = (str(labels[key]) for key in ("program", "kind", "version"))
    return ZooRun(name, program, kind, version, trace_of(raw, keep_shared), phases, float(foreign), raw, raw.looks)


def zoo_folder() -> Path:
    """The data package: `$CLUSTERTWIN_ZOO`, or `data/zoo` of a source checkout."""
    return Path(os.environ.get("CLUSTERTWIN_ZOO", _PACKAGE))


def load_zoo(folder: Path | None = None, programs: Sequence[str] = (), keep_shared: bool = False) -> Iterator[ZooRun]:
    """All runs in the order of their names; `programs` chooses some."""
    folder = folder or zoo_folder()
    paths = sorted(folder.glob(f"*{SUFFIX}"))
    if not paths:
        raise RecordingError(folder, f"holds no run (*{SUFFIX})")
    for path in paths:
        if not programs or program_of(path.name.removesuffix(SUFFIX)) in programs:
            yield zoo_run_of(read_raw_run(path), keep_shared)


def summary_of(run: ZooRun) -> dict[str, Any]:
    """A row of the card."""
    faults = ", ".join(phase.fault for phase in run.phases)
    labels = run.raw.labels
    return {
        "run": run.name,
        "kind": run.kind,
        "version": run.version,
        "seconds": len(run.raw.times_s),
        "faults": faults,
        "job CPU": f"{labels['job_s'] / max(labels['healthy_cpu_s'], 1e-9):.3f}",
        "looks": len(run.looks),
        "other work": f"{run.foreign:.3f}",
    }
