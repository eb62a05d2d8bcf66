"""Run the jobs of a round on this host: planned jobs -> supervised, pinned processes, in parallel on free CPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clustertwin.telemetry.campaign.job_labels import spans_of
from clustertwin.telemetry.campaign.launcher import FinishedJob
from clustertwin.telemetry.campaign.plan import PlannedJob


@dataclass(frozen=True, slots=True)
class _Running:
    job: PlannedJob
    cpus: tuple[int, ...]
    start_s: float
    process: subprocess.Popen[str]


class DirectLauncher:
    """Starts jobs in the planned order, each as soon as enough CPUs have been free for `settle_s`."""

    def __init__(
        self, jobs: Sequence[PlannedJob], node: str, cpus: tuple[int, ...], scratch: Path, settle_s: float, prefix: str
    ) -> None:
        self._waiting = list(jobs)
        self._node, self._scratch, self._settle_s, self._prefix = node, scratch, settle_s, prefix
        self._free_since_s = dict.fromkeys(cpus, -settle_s)  # only CPUs without a job
        self._running: list[_Running] = []

    @property
    def running(self) -> tuple[str, ...]:
        return tuple(running.job.name for running in self._running)

    @property
    def pending(self) -> int:
        return len(self._waiting) + len(self._running)

    def step(self, now_s: float) -> list[FinishedJob]:
        ended = [running for running in self._running if running.process.poll() is not None]
        self._running = [running for running in self._running if running not in ended]
        for running in ended:
            self._free_since_s |= dict.fromkeys(running.cpus, now_s)
        while self._waiting and (cpus := self._free_cpus(self._waiting[0].threads, now_s)):
            self._running.append(self._start(self._waiting.pop(0), cpus, now_s))
        return [self._finish(running, now_s) for running in ended]

    def close(self) -> None:
        for running in self._running:
            running.process.terminate()
        for running in self._running:
            running.process.communicate()
        self._running.clear()
        self._waiting.clear()

    def _free_cpus(self, count: int, now_s: float) -> tuple[int, ...]:
        settled = [cpu for cpu, since_s in sorted(self._free_since_s.items()) if now_s - since_s >= self._settle_s]
        return tuple(settled[:count]) if len(settled) >= count else ()

    def _start(self, job: PlannedJob, cpus: tuple[int, ...], now_s: float) -> _Running:
        for cpu in cpus:
            del self._free_since_s[cpu]
        command = supervisor_command(job, self._scratch / f"{self._prefix}-{job.name}")
        process = subprocess.Popen(
            [*command, "--cpus", ",".join(map(str, cpus)), "--parent", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,  # Ctrl-C reaches only this process, which then ends the jobs in order
        )
        return _Running(job, cpus, now_s, process)

    def _finish(self, running: _Running, now_s: float) -> FinishedJob:
        job, message = running.job, running.process.communicate()[1].strip()
        failed = running.process.returncode != 0
        # The time after the planned length is the shutdown of the job and not part of it.
        end_s = now_s if failed else running.start_s + job.seconds
        cpus = {self._node: running.cpus}
        spans = spans_of(job, f"{self._prefix}-{job.name}", cpus, running.start_s, end_s, failed)
        return FinishedJob(job.name, tuple(spans), (message or "no error message") if failed else "")


def supervisor_command(job: PlannedJob, scratch: Path) -> list[str]:
    """The command line that runs a job, on this host or in a batch script."""
    return [
        *(sys.executable, "-m", f"{__package__}.supervisor", "--type", job.type, "--seconds", str(job.seconds)),
        *("--seed", str(job.seed), "--onset-s", str(job.onset_s or 0.0), "--ranks", str(job.threads)),
        *("--scratch", str(scratch)),
    ]
