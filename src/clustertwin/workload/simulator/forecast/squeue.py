"""The live queue of a Slurm cluster: the output of squeue -> the running and the waiting jobs at one moment."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import InputError, SourceError
from clustertwin.core.foreign_files import read_output, read_text
from clustertwin.core.formatting import visible
from clustertwin.workload.formats.parsing.slurm_fields import parse_duration
from clustertwin.workload.jobs import Jobs

#: id, user, state, cpus, nodes, time limit, elapsed time, reason for waiting
FORMAT = "%i|%u|%T|%C|%D|%l|%M|%r"
#: In the order of Slurm's priorities. `--array` prints a line for each task of a waiting array, because each task has
#: its own start time.
COMMAND = ("squeue", "--noheader", "--array", "--states=RUNNING,PENDING", "--sort=-p,i", f"--format={FORMAT}")

#: No job takes longer, or has more CPUs or nodes.
LONGEST_S, MOST_COUNTED = 1e10, 2**31
#: The limit of a job that has none.
UNLIMITED_S = 365 * 86_400.0
#: Of the answer; a line has about 100.
MOST_BYTES = 256 << 20

#: Reasons for waiting other than resources: no scheduling decision can start these jobs.
HELD = ("JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "Dependency", "DependencyNeverSatisfied", "BeginTime")


@dataclass(frozen=True, slots=True)
class LiveQueue:
    """The queue at one moment. Waiting jobs are submitted at second 0, running jobs a second earlier.

    The `request_s` of a running job is what is left of its time limit. Run times are unknown and equal to the limit.
    """

    jobs: Jobs  # running jobs first
    names: tuple[str, ...]  # Slurm's job ids; `jobs.id` is the line number in the output of squeue
    elapsed_s: NDArray[np.float64]  # how long each job has run
    running: int  # number of running jobs
    held: int  # number of jobs that wait for something other than resources; they are not in `jobs`

    @property
    def limit_s(self) -> NDArray[np.float64]:
        """(job,) the whole time limit of each job."""
        return self.jobs.request_s + self.jobs.submit_s + self.elapsed_s


class _SqueueLine(NamedTuple):
    name: str
    line: int
    user: str
    is_running: bool
    cpus: int
    nodes: int
    left_s: float
    elapsed_s: float


def read_squeue(command: tuple[str, ...] = COMMAND) -> str:
    """Run squeue on this machine and return its output."""
    try:
        done = read_output(command, MOST_BYTES, 60, {**os.environ, "LC_ALL": "C"})
    except FileNotFoundError as error:
        raise SourceError(f"{command[0]} is not installed; run this where Slurm's commands are") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(f"{command[0]} did not answer: {error}") from error
    if done.returncode:
        reason = visible(" ".join(done.stderr[:500].decode("utf-8", "replace").split()))
        raise SourceError(f"{command[0]} failed: {reason or f'exit code {done.returncode}'}")
    return done.stdout.decode("utf-8", "replace")  # what users write may have any bytes


def live_queue(path: Path | None) -> LiveQueue:
    """The queue in a file with squeue's output, or without one the queue of this machine now."""
    return parse_squeue(read_squeue()) if path is None else parse_squeue(read_text(path), str(path))


def parse_squeue(text: str, name: str = "squeue") -> LiveQueue:
    """The queue in an output of squeue (`FORMAT`). A job without a time limit gets a limit of a year.

    Errors call the output `name`, which may be a file.
    """
    lines: list[_SqueueLine] = []
    held = 0
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.strip().split("|", 7)  # a reason may be a text of a plugin: it stands last
        if len(fields) != 8:
            raise InputError(name, f"{len(fields)} fields, expected 8: {FORMAT}", number)
        job, user, state, cpus, nodes, limit, elapsed, reason = fields
        if state == "PENDING" and is_held(reason):
            held += 1
            continue
        try:
            limit_s = parse_duration(limit)
            elapsed_s = max(parse_duration(elapsed), 0.0)
            left_s = max((limit_s if limit_s > 0 else UNLIMITED_S) - elapsed_s, 1.0)
            if not left_s + elapsed_s < LONGEST_S:
                raise ValueError("a time is too long")
            sizes = _count(cpus), _count(nodes)
            lines.append(_SqueueLine(job, number, user, state == "RUNNING", *sizes, left_s, elapsed_s))
        except ValueError as error:
            raise InputError(name, str(error), number) from error
    lines.sort(key=lambda line: not line.is_running)  # a stable sort keeps Slurm's order
    users = {user: code for code, user in enumerate(sorted({line.user for line in lines}))}
    running = sum(line.is_running for line in lines)
    # Running jobs are submitted a second before the waiting ones, so that they start first under every policy.
    ahead_s = np.where(np.arange(len(lines)) < running, 1.0, 0.0)
    limits_s = np.array([line.left_s for line in lines]) + ahead_s
    jobs = Jobs.build(
        submit_s=0.0 - ahead_s,  # not -0.0, which prints as -0
        run_s=limits_s,
        request_s=limits_s,
        id=[line.line for line in lines],
        cpus=[line.cpus for line in lines],
        nodes=[line.nodes for line in lines],
        user=[users[line.user] for line in lines],
        names={"user": tuple(users)},
    )
    names = tuple(line.name for line in lines)
    return LiveQueue(jobs, names, np.array([line.elapsed_s for line in lines]), running, held)


def is_held(reason: str, reasons: Sequence[str] = HELD) -> bool:
    """Whether a job waits for a person, another job or a time, by the reason that squeue prints.

    >>> is_held("(launch failed requeued held)"), is_held("Resources")
    (True, False)
    """
    word = reason.strip("()")
    return word in reasons or word.replace("_", "").replace(" ", "").endswith("requeuedheld")


def _count(text: str) -> int:
    """A whole number that a job table can hold; ValueError for anything else."""
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) < MOST_COUNTED):
        raise ValueError(f"{text[:20]!r} is not a number of CPUs or nodes; the fields are {FORMAT}")
    return int(text)


def read_size(unit: str) -> int:
    """The number of CPUs or nodes of this Slurm cluster that are not down, according to sinfo."""
    field = "%C" if unit == "cpus" else "%F"  # allocated/idle/other/total
    text = read_squeue(("sinfo", "--noheader", f"--format={field}"))
    try:
        rows = [[_count(part) for part in line.split("/")] for line in text.split()]
        if not rows:
            raise ValueError("nothing")
        return sum(allocated + idle for allocated, idle, _, _ in rows)
    except ValueError:
        raise InputError("sinfo", f"not allocated/idle/other/total ({field}): {visible(text[:60])!r}") from None
