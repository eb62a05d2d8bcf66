"""The live queue of a Slurm: squeue's text -> jobs that run and jobs that wait, at one moment."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

import numpy as np

from clustertwin.core.errors import InputError, SourceError
from clustertwin.workload.formats.slurm import parse_duration
from clustertwin.workload.jobs import Jobs

#: id, user, state, cpus, nodes, limit, time it has run, reason it waits; in the order of Slurm's priorities.
FORMAT = "%i|%u|%T|%C|%D|%l|%M|%r"
COMMAND = ("squeue", "--noheader", "--states=RUNNING,PENDING", "--sort=-p,i", f"--format={FORMAT}")

#: What a job waits for that no scheduler can give it.
HELD = ("JobHeldUser", "JobHeldAdmin", "Dependency", "DependencyNeverSatisfied", "BeginTime")


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queue at one moment: `jobs` with submission 0 if they wait, and a second before it if they run.

    Of running jobs `request_s` is what was left of their limit then. Run times are not known, and set to the limit.
    """

    jobs: Jobs
    running: int  # the first so many
    held: int  # waited for something else than processors, and are left out


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
    rows: list[tuple[bool, int, int, int, float, str]] = []
    held = 0
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.strip().split("|")
        if len(fields) != 8:
            raise InputError("squeue", f"{len(fields)} fields, expected 8: {FORMAT}", number)
        _, user, state, cpus, nodes, asked, elapsed, reason = fields
        if state == "PENDING" and reason.strip("()") in HELD:
            held += 1
            continue
        try:
            limit_s = parse_duration(asked)
            left_s = (limit_s if limit_s > 0 else unlimited_s) - max(parse_duration(elapsed), 0.0)
            rows.append((state == "RUNNING", number, int(cpus), int(nodes), max(left_s, 1.0), user))
        except ValueError as reason_why:
            raise InputError("squeue", str(reason_why), number) from reason_why
    rows.sort(key=lambda row: not row[0])  # stable: Slurm's order within
    names = tuple(sorted({row[5] for row in rows}))
    running = sum(row[0] for row in rows)
    # What runs is submitted a second before what waits, and so begins first under any policy.
    ahead_s = np.where(np.arange(len(rows)) < running, 1.0, 0.0)
    limit = np.array([row[4] for row in rows]) + ahead_s
    jobs = Jobs.build(
        submit_s=-ahead_s,
        run_s=limit,
        request_s=limit,
        id=[row[1] for row in rows],
        cpus=[row[2] for row in rows],
        nodes=[row[3] for row in rows],
        user=[names.index(row[5]) for row in rows],
        names={"user": names},
    )
    return Waiting(jobs, running, held)


def read_size(unit: str) -> int:
    """The cpus or nodes of this Slurm that are not down, by sinfo."""
    field = "%C" if unit == "cpus" else "%F"  # allocated/idle/other/total
    text = read_squeue(("sinfo", "--noheader", f"--format={field}"))
    counts = np.array([[int(part) for part in line.split("/")] for line in text.split()])
    return int(counts[:, 0].sum() + counts[:, 1].sum())
