"""Run the jobs of a round through Slurm: planned jobs -> sbatch; accounting -> the node and times of each job.

Jobs take whole nodes (`--exclusive`). Accounting stores node names and CPU counts but no CPU numbers; with whole nodes
this is enough for a label. A map gives the CPUs of the recorded host for each node. With one slurmd per host, that is
each host with all its CPUs. Processes inside a job are pinned by the same map, because several slurmd can share a host.
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
from clustertwin.telemetry.campaign.jobs.pinning import NODE_CPUS, format_node_cpus
from clustertwin.telemetry.campaign.launcher import FinishedJob
from clustertwin.telemetry.campaign.local_launcher import supervisor_command
from clustertwin.telemetry.campaign.plan import PlannedJob

_FIELDS = ("JobIDRaw", "NodeList", "AllocCPUS", "Start", "End", "State", "User")
_FINAL_STATES = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")
_QUERY_EVERY_S = 3.0  # accounting lags by seconds, and a query takes CPU time of the recorded host
_EXTRA_TIME_S = 120.0  # added to a job's length for Slurm's time limit


@dataclass(frozen=True, slots=True)
class AccountingRecord:
    """One line of accounting."""

    job_id: str
    nodes: str  # in Slurm's notation, n[1-2]
    cpus: int
    start_s: float | None
    end_s: float | None
    state: str
    user: str = ""

    @property
    def ended(self) -> bool:
        return self.state.startswith(_FINAL_STATES) and self.end_s is not None


def parse_accounting(text: str) -> dict[str, AccountingRecord]:
    """The output of `sacct -X -n -P` with times in epoch seconds -> job id -> record."""
    rows = [line.split("|") for line in text.splitlines() if line]
    invalid = [row for row in rows if len(row) != len(_FIELDS)]
    if invalid:
        raise SourceError(f"sacct: {len(invalid[0])} fields instead of {len(_FIELDS)}: {'|'.join(invalid[0])!r}")
    return {
        job_id: AccountingRecord(job_id, nodes, int(cpus or 0), _epoch(start), _epoch(end), state, user)
        for job_id, nodes, cpus, start, end, state, user in rows
    }


def _epoch(text: str) -> float | None:
    """Seconds, or None: Slurm writes Unknown or None for a time that has not come yet."""
    return float(text) if text.isdigit() and text != "0" else None


def batch_script(job: PlannedJob, node_cpus: Mapping[str, tuple[int, ...]], scratch: Path) -> str:
    """The script for sbatch: a supervisor on every node of the job, or a single one that starts `mpiexec`."""
    command = shlex.join(supervisor_command(job, Path("@")))
    per_node = f'{shlex.quote(str(scratch))}-"$SLURMD_NODENAME"'  # nodes may share the file system
    command = f"exec {command.replace(' @', ' ' + per_node)}"
    if not find_type(job.type).mpi:
        command = f"exec srun --ntasks-per-node=1 --cpu-bind=none sh -c {shlex.quote(command)}"
    return f"#!/bin/sh\nexport {NODE_CPUS}={shlex.quote(format_node_cpus(node_cpus))}\n{command}\n"


class SlurmLauncher:
    """Submits all jobs of a round in order; Slurm decides when and where they run."""

    def __init__(
        self, jobs: Sequence[PlannedJob], node_cpus: Mapping[str, tuple[int, ...]], scratch: Path, prefix: str
    ) -> None:
        self._jobs, self._node_cpus, self._scratch, self._prefix = list(jobs), dict(node_cpus), scratch, prefix
        self._submitted: dict[str, PlannedJob] = {}  # Slurm's job id -> job; only jobs that have not ended
        self._states: dict[str, str] = {}
        self._queried_s = 0.0

    @property
    def running(self) -> tuple[str, ...]:
        return tuple(job.name for job_id, job in self._submitted.items() if self._states.get(job_id) == "RUNNING")

    @property
    def pending(self) -> int:
        return len(self._jobs) + len(self._submitted)

    def step(self, now_s: float) -> list[FinishedJob]:
        while self._jobs:
            job = self._jobs.pop(0)
            self._submitted[self._submit(job)] = job
        if now_s - self._queried_s < _QUERY_EVERY_S or not self._submitted:
            return []
        self._queried_s = now_s
        command = ["sacct", "-X", "-n", "-P", "-j", ",".join(self._submitted), "-o", ",".join(_FIELDS)]
        records = parse_accounting(_slurm(command))
        self._states = {job_id: record.state for job_id, record in records.items()}
        ended = [record for record in records.values() if record.ended and record.job_id in self._submitted]
        return [self._finish(record) for record in ended]

    def close(self) -> None:
        if self._submitted:
            _slurm(["scancel", *self._submitted])
        self._submitted.clear()
        self._jobs.clear()

    def _submit(self, job: PlannedJob) -> str:
        per_node = len(next(iter(self._node_cpus.values())))
        minutes = int((job.seconds + _EXTRA_TIME_S) // 60) + 1
        ranks = per_node if find_type(job.type).mpi else 1
        options = [
            *("--parsable", "--exclusive", f"--nodes={max(1, job.threads // per_node)}", f"--ntasks-per-node={ranks}"),
            *(f"--job-name={self._prefix}-{job.name}", f"--output={self._output(job)}", f"--time={minutes}"),
            *("--no-requeue",),  # a requeued job would have two start times
        ]
        script = batch_script(job, self._node_cpus, self._scratch / f"{self._prefix}-{job.name}")
        return _slurm(["sbatch", *options], script).strip().partition(";")[0]

    def _output(self, job: PlannedJob) -> Path:
        return self._scratch / f"{self._prefix}-{job.name}.out"

    def _finish(self, record: AccountingRecord) -> FinishedJob:
        job = self._submitted.pop(record.job_id)
        path = self._output(job)
        output = path.read_text(errors="replace").strip()[-2000:] if path.exists() else ""
        path.unlink(missing_ok=True)
        if record.start_s is None or record.end_s is None:
            return FinishedJob(job.name, (), f"{record.state} before it started: {output or 'no output'}")
        failed = record.state != "COMPLETED"
        spans = spans_of(job, record.job_id, self._cpus_of(record), record.start_s, record.end_s, failed)
        owned = tuple(replace(span, owner=record.user) for span in spans)
        return FinishedJob(job.name, owned, f"{record.state}: {output or 'no output'}" if failed else "")

    def _cpus_of(self, record: AccountingRecord) -> dict[str, tuple[int, ...]]:
        """The job's nodes in Slurm's order, each with all its CPUs; their number must agree with accounting."""
        names = _slurm(["scontrol", "show", "hostnames", record.nodes]).split()
        unknown = [name for name in names if name not in self._node_cpus]
        if unknown:
            recorded = format_node_cpus(self._node_cpus)
            raise SettingsError(
                f"job {record.job_id} ran on {', '.join(unknown)}, which is not recorded; recorded nodes: {recorded}"
            )
        cpus = {name: self._node_cpus[name] for name in names}
        count = sum(map(len, cpus.values()))
        if record.cpus != count:
            raise SettingsError(
                f"job {record.job_id} on {record.nodes}: accounting reports {record.cpus} CPUs, --nodes gives {count}"
            )
        return cpus


def _slurm(command: Sequence[str], script: str | None = None) -> str:
    """The output of a Slurm command, with times in epoch seconds."""
    env = os.environ | {"SLURM_TIME_FORMAT": "%s"}
    try:
        done = subprocess.run(command, input=script, env=env, capture_output=True, text=True, timeout=30)
    except FileNotFoundError:
        raise SourceError(
            f"{command[0]} is not installed; a campaign through Slurm needs its client commands"
        ) from None
    except subprocess.TimeoutExpired:
        raise SourceError(f"{command[0]} did not answer within 30 s") from None
    if done.returncode:
        raise SourceError(f"{command[0]}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout
