"""The cgroups of a job: their directories, or a process -> CPU time, counters, and whether a freezer stops it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from clustertwin.telemetry.exporter.text.kernelfile import read_file

ROOT = "/sys/fs/cgroup"
#: Where version 2 is mounted; on a hybrid host the second one.
ROOTS_V2 = (ROOT, f"{ROOT}/unified")
#: Files of a cgroup (v2) whose numbers are compared: file -> the keys.
COUNTERS = {"memory.events": ("oom", "oom_kill"), "cpu.stat": ("nr_throttled", "throttled_usec")}


def cpu_s(directories: Iterable[str]) -> float | None:
    """CPU time of everything that ran in the cgroup of a job, also of processes that have ended; None if unknown."""
    for directory in directories:
        with suppress(OSError, ValueError):
            return int(read_file(f"{directory}/cpuacct.usage")) / 1e9  # v1
        with suppress(OSError, ValueError, KeyError):
            return _pairs(f"{directory}/cpu.stat")["usage_usec"] / 1e6  # v1 has a file of this name without the key
    return None


def counters(pid: int) -> dict[str, int]:
    """The counters of the cgroup (v2) of a process."""
    values: dict[str, int] = {}
    path = _paths(pid).get("")
    for name, keys in COUNTERS.items() if path is not None else ():
        with suppress(OSError, ValueError):
            values |= {key: value for key, value in _pairs(f"{ROOT}{path}/{name}").items() if key in keys}
    return values


def is_frozen(pid: int) -> bool:
    """Whether the freezer of a cgroup stops the process, as `scontrol suspend` does. No signal shows that."""
    paths = _paths(pid)
    with suppress(OSError, KeyError):
        if read_file(f"{ROOT}/freezer{paths['freezer']}/freezer.state").strip() in (b"FROZEN", b"FREEZING"):
            return True
    path = paths.get("", "")
    while path.strip("/"):  # a group is frozen with each group above it; the top one has no freezer
        for root in ROOTS_V2:
            with suppress(OSError):
                if read_file(f"{root}{path}/cgroup.freeze").strip() == b"1":
                    return True
        path = os.path.dirname(path)
    return False


def _paths(pid: int) -> dict[str, str]:
    """Controller -> the path of its group; version 2 has no name. Empty if the process has ended."""
    paths: dict[str, str] = {}
    with suppress(OSError, ValueError):
        for line in read_file(f"/proc/{pid}/cgroup").decode("utf-8", "surrogateescape").splitlines():
            _, controllers, path = line.split(":", 2)
            paths |= dict.fromkeys(controllers.split(","), path.rstrip("/"))
    return paths


def _pairs(path: str) -> dict[str, int]:
    words = read_file(path).decode("ascii", "replace").split()
    return {name: int(value) for name, value in zip(words[::2], words[1::2], strict=False)}
