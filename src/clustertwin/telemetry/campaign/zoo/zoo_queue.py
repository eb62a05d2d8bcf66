"""The queue of recordings: programs, rounds and faults -> runs in order, recorded one after the other.

Breadth first: every program is recorded once before any is recorded twice. A complete run is kept, so that the queue
can be stopped at any time and continued, and recorders on different CPUs can share it. A program that fails is noted in
`NAME.failed` and not tried again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from clustertwin.core import files
from clustertwin.core.errors import SettingsError, TwinError
from clustertwin.telemetry.campaign.zoo.program_table import PROGRAMS, find_program
from clustertwin.telemetry.campaign.zoo.raw_run import SUFFIX, is_being_recorded
from clustertwin.telemetry.campaign.zoo.zoo_faults import FAULTS, find_fault
from clustertwin.telemetry.campaign.zoo.zoo_run import PlannedRun, RunSchedule, owning, record_run

_STRIDE = 37  # between two rounds; prime to the number of faults, so that a program meets other faults


def faults_of(number: int, per_run: int, faults: Sequence[str] = tuple(FAULTS)) -> tuple[str, ...]:
    """The faults of the run with this number. All faults are drawn in turn.

    Neighbours in the table of faults are alike, so that a run takes every third.

    >>> faults_of(0, 2, "abcd"), faults_of(1, 2, "abcd")
    (('a', 'd'), ('b', 'c'))
    """
    mixed = [*faults[::3], *faults[1::3], *faults[2::3]]
    return tuple(mixed[(per_run * number + k) % len(mixed)] for k in range(per_run))


def plan_runs(
    rounds: int,
    programs: Sequence[str] = (),
    faults: Sequence[str] = (),
    faults_per_run: int = 2,
    threads: int = 1,
) -> Iterator[PlannedRun]:
    """All runs in the order of the queue; by default of every installed program with every fault.

    The faults of a run do not change when programs are added to the end of the table.
    """
    for name in faults:
        find_fault(name)
    places = list(PROGRAMS)
    chosen = [name for name in programs or places if not find_program(name).missing]
    if not chosen:
        raise SettingsError("no program of the zoo is installed; deploy/install-zoo installs them")
    for number in range(rounds):
        for name in chosen:
            place = places.index(name) + _STRIDE * number
            drawn = faults_of(place, faults_per_run, tuple(faults) or tuple(FAULTS))
            yield PlannedRun(name, number, drawn, threads)


def is_done(run: PlannedRun, out: Path) -> bool:
    return (out / f"{run.name}{SUFFIX}").exists() or (out / f"{run.name}.failed").exists()


def record_queue(
    runs: Sequence[PlannedRun],
    schedule: RunSchedule,
    cpus: Sequence[int],
    out: Path,
    *,
    cache: Path,
    most_runs: int = 0,
    report: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Record the runs that are missing, at most `most_runs` if this is not 0; returns the new files."""
    files.make_directory(out)
    files.make_directory(cache)
    recorded: list[Path] = []
    with owning(cpus):
        for run in runs:
            path = out / f"{run.name}{SUFFIX}"
            if is_done(run, out) or is_being_recorded(path):
                continue
            if most_runs and len(recorded) >= most_runs:
                break
            report(f"{run.name}: {', '.join(run.faults)}")
            try:
                record_run(run, schedule, cpus, cache=cache, path=path)
                recorded.append(path)
            except TwinError as error:
                if is_being_recorded(path):
                    continue  # a recorder on other CPUs was faster
                report(f"{run.name} failed: {error}")
                files.write(out / f"{run.name}.failed", f"{error}\n")
    return recorded


def check_host() -> None:
    """Raise unless this process may make groups and bind programs."""
    if os.geteuid() != 0:
        raise SettingsError("the zoo makes cgroups and binds programs to CPUs: run it as root")
