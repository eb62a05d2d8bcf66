"""A job's control group: name and CPUs -> processes that are bound, limited, counted and ended together.

The group exists in every mounted v1 hierarchy that matters and in the v2 hierarchy beside them, which counts pressure.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from clustertwin.core.errors import SettingsError

CGROUPS = Path("/sys/fs/cgroup")
V1 = ("cpu", "cpuacct", "cpuset", "memory", "blkio")
V2 = "unified"
_PERIOD_US = 100_000
_SHARES = 65_536  # 64 times the weight of a process without a group: other work on the CPU hardly disturbs
_END_WITHIN_S = 20.0


class JobGroup:
    """A group that exists until `remove`."""

    def __init__(self, name: str, cpus: Sequence[int], root: Path = CGROUPS) -> None:
        self.name, self.cpus, self._root = name, tuple(cpus), root
        self.folders = {controller: root / controller / name for controller in (*V1, V2)}

    def create(self) -> None:
        missing = [name for name, folder in self.folders.items() if not folder.parent.is_dir()]
        if missing:
            raise SettingsError(f"{self._root}: no hierarchy of {', '.join(missing)}; the zoo needs cgroups v1 and v2")
        for folder in self.folders.values():
            folder.mkdir(exist_ok=True)
        self._write("cpuset", "cpuset.mems", (self._root / "cpuset" / "cpuset.mems").read_text().strip())
        self._write("cpuset", "cpuset.cpus", ",".join(map(str, self.cpus)))
        self._write("cpu", "cpu.shares", str(_SHARES))
        self.limit_cpu(None)

    def enter(self) -> None:
        """Move this process into the group. It is called in the child, before it becomes another program."""
        for folder in self.folders.values():
            (folder / "cgroup.procs").write_text(f"{os.getpid()}\n")

    def processes(self) -> list[int]:
        with suppress(FileNotFoundError):
            return [int(word) for word in (self.folders[V2] / "cgroup.procs").read_text().split()]
        return []

    def cpu_ns(self) -> int:
        """CPU time of all that ran in the group."""
        return int((self.folders["cpuacct"] / "cpuacct.usage").read_text())

    def limit_cpu(self, share: float | None) -> None:
        """Let the group use this share of one CPU; None removes the limit."""
        quota = -1 if share is None else round(share * _PERIOD_US)
        self._write("cpu", "cpu.cfs_period_us", str(_PERIOD_US))
        self._write("cpu", "cpu.cfs_quota_us", str(quota))

    def limit_memory(self, limit_bytes: int) -> None:
        self._write("memory", "memory.limit_in_bytes", str(limit_bytes))

    def memory_bytes(self) -> int:
        return int((self.folders["memory"] / "memory.usage_in_bytes").read_text())

    def major_faults(self) -> int:
        words = (self.folders["memory"] / "memory.stat").read_text().split()
        return int(words[words.index("total_pgmajfault") + 1])

    def limit_reads(self, device: str, bytes_per_s: int) -> None:
        """Limit reads from a block device (`254:0`); 0 removes the limit."""
        self._write("blkio", "blkio.throttle.read_bps_device", f"{device} {bytes_per_s}")

    def end_processes(self) -> None:
        """Kill every process of the group, stopped ones too, until none is left."""
        end_s = time.monotonic() + _END_WITHIN_S
        while processes := self.processes():
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            if time.monotonic() > end_s:
                raise SettingsError(f"group {self.name}: processes {processes} do not end")
            time.sleep(0.02)

    def remove(self) -> None:
        self.end_processes()
        end_s = time.monotonic() + _END_WITHIN_S
        for folder in self.folders.values():
            while folder.is_dir():
                try:
                    folder.rmdir()
                except OSError:
                    if time.monotonic() > end_s:
                        raise
                    time.sleep(0.05)  # a killed process still leaves its group

    def _write(self, controller: str, file: str, text: str) -> None:
        path = self.folders[controller] / file
        try:
            path.write_text(text)
        except OSError as error:
            raise SettingsError(f"{path}: cannot write {text!r}: {error.strerror}") from error


@contextmanager
def job_group(name: str, cpus: Sequence[int]) -> Iterator[JobGroup]:
    group = JobGroup(name, cpus)
    if group.folders[V2].is_dir():
        group.remove()  # left by a run that was killed
    group.create()
    try:
        yield group
    finally:
        group.remove()
