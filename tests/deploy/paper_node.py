"""A simulated node for a real exporter: ratios -> /proc/stat, which changes over time, and the CPU set of a job."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TICKS = 100  # per second
PID, UID = 4242, 1  # a process of the job, and its owner


def cpu_stat(user_s: float, system_s: float) -> str:
    """A cgroup's cpu.stat."""
    user, system = round(user_s * 1e6), round(system_s * 1e6)
    return f"usage_usec {user + system:020d}\nuser_usec {user:020d}\nsystem_usec {system:020d}\n"


@dataclass(frozen=True)
class PaperNode:
    """`root` is for `--path.rootfs`. The cgroup of `job` exists from the start until `end_job`."""

    root: Path
    job: str
    values: NDArray[np.float32]  # (cpu, second, channel): user, system, iowait, other; from the job's first second on

    @property
    def _cgroup(self) -> Path:
        return self.root / f"sys/fs/cgroup/system.slice/slurmstepd.scope/job_{self.job}"

    def begin(self) -> None:
        cpus, group = len(self.values), self._cgroup
        for directory in (self.root / "sys/fs/cgroup", group):
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "cgroup.controllers").write_text("cpuset cpu memory\n")
        (group / "cpuset.cpus").write_text(f"0-{cpus - 1}\n")
        (group / "cpuset.cpus.effective").write_text(f"0-{cpus - 1}\n")
        (group / "cpu.stat").write_text(cpu_stat(0.0, 0.0))
        (group / "cgroup.procs").write_text(f"{PID}\n")
        (self.root / f"proc/{PID}").mkdir(parents=True, exist_ok=True)
        (self.root / f"proc/{PID}/status").write_text(f"Name:\tsolver\nUid:\t{UID}\t{UID}\t{UID}\t{UID}\n")
        self._write(np.zeros((cpus, self.values.shape[2])))

    def end_job(self) -> None:
        for file in self._cgroup.iterdir():
            file.unlink()
        self._cgroup.rmdir()

    def _write(self, seconds: NDArray[np.float64]) -> None:
        """Write seconds (cpu, channel) since the start. The rename keeps a reader from seeing half a file."""
        lines = []
        for cpu, (user, system, iowait, idle) in enumerate(np.round(seconds * TICKS).astype(int).tolist()):
            lines.append(f"cpu{cpu} {user} 0 {system} {idle} {iowait} 0 0 0 0 0")
        draft = self.root / "proc/.stat"
        draft.write_text("cpu  0 0 0 0 0 0 0 0 0 0\n" + "\n".join(lines) + "\nbtime 1731700000\n")
        draft.rename(self.root / "proc/stat")
        # All work is the job's. The exporter keeps the file open, so write in place, always the same length.
        with suppress(FileNotFoundError), (self._cgroup / "cpu.stat").open("r+") as file:
            file.write(cpu_stat(float(seconds[:, 0].sum()), float(seconds[:, 1].sum())))

    def live(self, stop: threading.Event) -> None:
        """Update the counters ten times a second until `stop` is set. After the last value the node is idle."""
        begun_s = time.monotonic()
        idle = np.array([0.0, 0.0, 0.0, 1.0])
        known = np.concatenate([np.zeros_like(self.values[:, :1]), self.values.cumsum(1, dtype=np.float64)], 1)
        while not stop.wait(0.1):
            passed_s = time.monotonic() - begun_s
            full_s = min(int(passed_s), self.values.shape[1])
            ratios = self.values[:, full_s] if full_s < self.values.shape[1] else idle
            self._write(known[:, full_s] + (passed_s - full_s) * ratios)


@contextmanager
def living(node: PaperNode) -> Iterator[PaperNode]:
    node.begin()
    stop = threading.Event()
    thread = threading.Thread(target=node.live, args=(stop,))
    thread.start()
    try:
        yield node
    finally:
        stop.set()
        thread.join()
