"""Run a round's jobs on this host: planned jobs -> supervised, pinned processes, side by side where CPUs are free."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clustertwin.telemetry.campaign.job_labels import spans_of
from clustertwin.telemetry.campaign.launcher import Finished
from clustertwin.telemetry.campaign.plan import Planned


@dataclass(frozen=True, slots=True)
class _Running:
    job: Planned
    cpus: tuple[int, ...]
    start_s: float
    process: subprocess.Popen[str]


class DirectLauncher:
    """In the planned order; a job starts when enough CPUs have been quiet for `settle_s`. Never overtakes."""

    def __init__(
        self, jobs: Sequence[Planned], node: str, cpus: tuple[int, ...], scratch: Path, settle_s: float, prefix: str
    ) -> None:
        self._waiting = list(jobs)
        self._node, self._scratch, self._settle_s, self._prefix = node, scratch, settle_s, prefix
        self._quiet_since_s = dict.fromkeys(cpus, -settle_s)  # only CPUs that no job holds
        self._running: list[_Running] = []

    @property
    def running(self) -> tuple[str, ...]:
        return tuple(each.job.name for each in self._running)

    @property
    def pending(self) -> int:
        return len(self._waiting) + len(self._running)

    def step(self, now_s: float) -> list[Finished]:
        over = [each for each in self._running if each.process.poll() is not None]
        self._running = [each for each in self._running if each not in over]
        for each in over:
            self._quiet_since_s |= dict.fromkeys(each.cpus, now_s)
        while self._waiting and (cpus := self._free(self._waiting[0].threads, now_s)):
            self._running.append(self._start(self._waiting.pop(0), cpus, now_s))
        return [self._finish(each, now_s) for each in over]

    def close(self) -> None:
        for each in self._running:
            each.process.terminate()
        for each in self._running:
            each.process.communicate()
        self._running.clear()
        self._waiting.clear()

    def _free(self, count: int, now_s: float) -> tuple[int, ...]:
        quiet = [cpu for cpu, since_s in sorted(self._quiet_since_s.items()) if now_s - since_s >= self._settle_s]
        return tuple(quiet[:count]) if len(quiet) >= count else ()

    def _start(self, job: Planned, cpus: tuple[int, ...], now_s: float) -> _Running:
        for cpu in cpus:
            del self._quiet_since_s[cpu]
        command = supervisor_command(job, self._scratch / f"{self._prefix}-{job.name}")
        process = subprocess.Popen(
            [*command, "--cpus", ",".join(map(str, cpus)), "--parent", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,  # Ctrl-C is for us: we end the jobs in order
        )
        return _Running(job, cpus, now_s, process)

    def _finish(self, each: _Running, now_s: float) -> Finished:
        words = each.process.communicate()[1].strip()
        failed = each.process.returncode != 0
        # It worked until its length was over; what followed was its funeral.
        end_s = now_s if failed else each.start_s + each.job.seconds
        place = {self._node: each.cpus}
        spans = spans_of(each.job, f"{self._prefix}-{each.job.name}", place, each.start_s, end_s, failed)
        return Finished(each.job.name, tuple(spans), (words or "it said nothing") if failed else "")


def supervisor_command(job: Planned, scratch: Path) -> list[str]:
    """The command line that runs this job, wherever it is started."""
    return [
        *(sys.executable, "-m", f"{__package__}.supervisor", "--type", job.type, "--seconds", str(job.seconds)),
        *("--seed", str(job.seed), "--onset-s", str(job.onset_s or 0.0), "--ranks", str(job.threads)),
        *("--scratch", str(scratch)),
    ]
