"""Run a round's jobs through Slurm: planned jobs -> sbatch; its accounting -> which job ran where and when.

Jobs take whole nodes (`--exclusive`), so that a node's CPUs are the job's CPUs and accounting, which knows node
names and CPU counts but no CPU numbers, says all that a label needs. Which CPUs of the recorded host a node stands
for is given as a map; on a cluster of one slurmd per host that is each host with all its CPUs. Inside the job every
process is pinned by that same map, for the sake of clusters whose several slurmd share one host.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from clustertwin.core.errors import SettingsError, SourceError
from clustertwin.telemetry.campaign.catalogue import find_type
from clustertwin.telemetry.campaign.job_labels import spans_of
from clustertwin.telemetry.campaign.launcher import Finished
from clustertwin.telemetry.campaign.local_launcher import supervisor_command
from clustertwin.telemetry.campaign.pinning import NODE_CPUS, format_node_cpus
from clustertwin.telemetry.campaign.plan import Planned

_FIELDS = ("JobIDRaw", "NodeList", "AllocCPUS", "Start", "End", "State", "User")
_OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")
_ASK_EVERY_S = 3.0  # accounting lags by seconds anyway, and asking costs the recorded host CPU time
_PATIENCE_S = 120.0  # beyond a job's length, before Slurm kills it


@dataclass(frozen=True, slots=True)
class Accounted:
    """One line of accounting."""

    job_id: str
    nodes: str  # Slurm's own notation, n[1-2]
    cpus: int
    start_s: float | None
    end_s: float | None
    state: str
    user: str = ""

    @property
    def over(self) -> bool:
        return self.state.startswith(_OVER) and self.end_s is not None


def parse_accounting(text: str) -> dict[str, Accounted]:
    """The output of `sacct -X -n -P` in our fields, times in epoch seconds -> job id -> what it says."""
    rows = [line.split("|") for line in text.splitlines() if line]
    bad = [row for row in rows if len(row) != len(_FIELDS)]
    if bad:
        raise SourceError(f"sacct: {len(bad[0])} fields where {len(_FIELDS)} were asked for: {'|'.join(bad[0])!r}")
    return {
        job_id: Accounted(job_id, nodes, int(cpus or 0), _epoch(start), _epoch(end), state, user)
        for job_id, nodes, cpus, start, end, state, user in rows
    }


def _epoch(text: str) -> float | None:
    """Slurm says Unknown or None for what has not happened yet."""
    return float(text) if text.isdigit() and text != "0" else None


def batch_script(job: Planned, node_cpus: Mapping[str, tuple[int, ...]], scratch: Path) -> str:
    """What sbatch runs: a supervisor on every node of the job, or one that starts MPI's own launcher."""
    command = shlex.join(supervisor_command(job, Path("@")))
    where = f'{shlex.quote(str(scratch))}-"$SLURMD_NODENAME"'  # nodes may share the file system
    command = f"exec {command.replace(' @', ' ' + where)}"
    if not find_type(job.type).mpi:
        command = f"exec srun --ntasks-per-node=1 --cpu-bind=none sh -c {shlex.quote(command)}"
    return f"#!/bin/sh\nexport {NODE_CPUS}={shlex.quote(format_node_cpus(node_cpus))}\n{command}\n"


class SlurmLauncher:
    """Submits all jobs of a round in order; Slurm decides when and where they run."""

    def __init__(
        self, jobs: Sequence[Planned], node_cpus: Mapping[str, tuple[int, ...]], scratch: Path, prefix: str
    ) -> None:
        self._jobs, self._node_cpus, self._scratch, self._prefix = list(jobs), dict(node_cpus), scratch, prefix
        self._submitted: dict[str, Planned] = {}  # Slurm's job id -> ours; those that are not over
        self._states: dict[str, str] = {}
        self._asked_s = 0.0

    @property
    def running(self) -> tuple[str, ...]:
        return tuple(job.name for job_id, job in self._submitted.items() if self._states.get(job_id) == "RUNNING")

    @property
    def pending(self) -> int:
        return len(self._jobs) + len(self._submitted)

    def step(self, now_s: float) -> list[Finished]:
        while self._jobs:
            job = self._jobs.pop(0)
            self._submitted[self._submit(job)] = job
        if now_s - self._asked_s < _ASK_EVERY_S or not self._submitted:
            return []
        self._asked_s = now_s
        command = ["sacct", "-X", "-n", "-P", "-j", ",".join(self._submitted), "-o", ",".join(_FIELDS)]
        accounted = parse_accounting(_slurm(command))
        self._states = {job_id: row.state for job_id, row in accounted.items()}
        return [self._finish(row) for row in accounted.values() if row.over and row.job_id in self._submitted]

    def close(self) -> None:
        if self._submitted:
            _slurm(["scancel", *self._submitted])
        self._submitted.clear()
        self._jobs.clear()

    def _submit(self, job: Planned) -> str:
        per_node = len(next(iter(self._node_cpus.values())))
        minutes = int((job.seconds + _PATIENCE_S) // 60) + 1
        ranks = per_node if find_type(job.type).mpi else 1
        options = [
            *("--parsable", "--exclusive", f"--nodes={max(1, job.threads // per_node)}", f"--ntasks-per-node={ranks}"),
            *(f"--job-name={self._prefix}-{job.name}", f"--output={self._words(job)}", f"--time={minutes}"),
            *("--no-requeue",),  # a job that ran twice has no one start
        ]
        script = batch_script(job, self._node_cpus, self._scratch / f"{self._prefix}-{job.name}")
        return _slurm(["sbatch", *options], script).strip().partition(";")[0]

    def _words(self, job: Planned) -> Path:
        return self._scratch / f"{self._prefix}-{job.name}.out"

    def _finish(self, row: Accounted) -> Finished:
        job = self._submitted.pop(row.job_id)
        words = self._words(job)
        said = words.read_text(errors="replace").strip()[-2000:] if words.exists() else ""
        words.unlink(missing_ok=True)
        if row.start_s is None or row.end_s is None:
            return Finished(job.name, (), f"{row.state} before it started: {said}")
        failed = row.state != "COMPLETED"
        spans = spans_of(job, row.job_id, self._place(row), row.start_s, row.end_s, failed)
        owned = tuple(replace(span, owner=row.user) for span in spans)
        return Finished(job.name, owned, f"{row.state}: {said or 'it said nothing'}" if failed else "")

    def _place(self, row: Accounted) -> dict[str, tuple[int, ...]]:
        """The job's nodes in Slurm's order, each with all its CPUs; accounting must agree on how many."""
        names = _slurm(["scontrol", "show", "hostnames", row.nodes]).split()
        unknown = [name for name in names if name not in self._node_cpus]
        if unknown:
            known = format_node_cpus(self._node_cpus)
            raise SettingsError(f"job {row.job_id} ran on {', '.join(unknown)}, which is not recorded ({known})")
        place = {name: self._node_cpus[name] for name in names}
        if row.cpus != sum(map(len, place.values())):
            raise SettingsError(f"job {row.job_id}: accounting says {row.cpus} CPUs on {row.nodes}, the map {place}")
        return place


def _slurm(command: Sequence[str], script: str | None = None) -> str:
    """The output of a Slurm command; times come as epoch seconds."""
    env = os.environ | {"SLURM_TIME_FORMAT": "%s"}
    try:
        done = subprocess.run(command, input=script, env=env, capture_output=True, text=True, timeout=30)
    except FileNotFoundError:
        raise SourceError(
            f"{command[0]} is not installed: a campaign through Slurm needs its client commands"
        ) from None
    except subprocess.TimeoutExpired:
        raise SourceError(f"{command[0]} did not answer within 30 s") from None
    if done.returncode:
        raise SourceError(f"{command[0]}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout
