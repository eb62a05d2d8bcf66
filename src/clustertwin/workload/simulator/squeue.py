"""The live queue of a Slurm: squeue's text -> jobs that run and jobs that wait, at one moment."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import InputError, SourceError
from clustertwin.workload.formats.parsing.slurm_fields import parse_duration
from clustertwin.workload.jobs import Jobs

#: id, user, state, cpus, nodes, limit, time it has run, reason it waits; in the order of Slurm's priorities.
FORMAT = "%i|%u|%T|%C|%D|%l|%M|%r"
#: `--array` gives each task of a waiting array its own line, as it will have its own start.
COMMAND = ("squeue", "--noheader", "--array", "--states=RUNNING,PENDING", "--sort=-p,i", f"--format={FORMAT}")

#: What a job waits for that no scheduler can give it.
HELD = ("JobHeldUser", "JobHeldAdmin", "Dependency", "DependencyNeverSatisfied", "BeginTime")


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queue at one moment: `jobs` with submission 0 if they wait, and a second before it if they run.

    Of running jobs `request_s` is what was left of their limit then. Run times are not known, and set to the limit.
    """

    jobs: Jobs
    names: tuple[str, ...]  # Slurm's ids; `jobs.id` is the line in squeue's text
    elapsed_s: NDArray[np.float64]  # how long each has run already
    running: int  # the first so many
    held: int  # waited for something else than processors, and are left out


class _Row(NamedTuple):
    name: str
    line: int
    user: str
    runs: bool
    cpus: int
    nodes: int
    left_s: float
    elapsed_s: float


def read_squeue(command: tuple[str, ...] = COMMAND) -> str:
    """Ask squeue on this machine."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "LC_ALL": "C"})
    except (OSError, subprocess.TimeoutExpired) as reason:
        raise SourceError(f"squeue did not answer: {reason}") from reason
    if done.returncode:
        raise SourceError(f"squeue failed: {done.stderr.strip()}")
    return done.stdout


def parse_squeue(text: str, unlimited_s: float = 365 * 86400.0) -> Waiting:
    """The queue in squeue's text (`FORMAT`); a job without limit is taken to ask for a year."""
    rows: list[_Row] = []
    held = 0
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.strip().split("|")
        if len(fields) != 8:
            raise InputError("squeue", f"{len(fields)} fields, expected 8: {FORMAT}", number)
        name, user, state, cpus, nodes, asked, elapsed, reason = fields
        if state == "PENDING" and reason.strip("()") in HELD:
            held += 1
            continue
        try:
            limit_s = parse_duration(asked)
            elapsed_s = max(parse_duration(elapsed), 0.0)
            left_s = max((limit_s if limit_s > 0 else unlimited_s) - elapsed_s, 1.0)
            rows.append(_Row(name, number, user, state == "RUNNING", int(cpus), int(nodes), left_s, elapsed_s))
        except ValueError as reason_why:
            raise InputError("squeue", str(reason_why), number) from reason_why
    rows.sort(key=lambda row: not row.runs)  # stable: Slurm's order within
    users = tuple(sorted({row.user for row in rows}))
    running = sum(row.runs for row in rows)
    # What runs is submitted a second before what waits, and so begins first under any policy.
    ahead_s = np.where(np.arange(len(rows)) < running, 1.0, 0.0)
    limit = np.array([row.left_s for row in rows]) + ahead_s
    jobs = Jobs.build(
        submit_s=-ahead_s,
        run_s=limit,
        request_s=limit,
        id=[row.line for row in rows],
        cpus=[row.cpus for row in rows],
        nodes=[row.nodes for row in rows],
        user=[users.index(row.user) for row in rows],
        names={"user": users},
    )
    return Waiting(jobs, tuple(row.name for row in rows), np.array([row.elapsed_s for row in rows]), running, held)


def read_size(unit: str) -> int:
    """The cpus or nodes of this Slurm that are not down, by sinfo."""
    field = "%C" if unit == "cpus" else "%F"  # allocated/idle/other/total
    text = read_squeue(("sinfo", "--noheader", f"--format={field}"))
    counts = np.array([[int(part) for part in line.split("/")] for line in text.split()])
    return int(counts[:, 0].sum() + counts[:, 1].sum())
