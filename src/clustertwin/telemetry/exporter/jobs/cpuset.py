"""The directories of a job -> the hardware threads of its own CPU set, which the kernel writes as `0-3,8`."""

from __future__ import annotations

import os
import re

from clustertwin.core.errors import InputError
from clustertwin.telemetry.exporter.jobs.cgroup_layouts import JobDirectory
from clustertwin.telemetry.exporter.text.kernelfile import read_file

MAX_CPU = 1 << 16
_PART = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")


def parse_cpulist(text: str, most_cpus: int = MAX_CPU) -> tuple[int, ...]:
    """`0-3,8` -> (0, 1, 2, 3, 8); the empty list is empty. Every CPU is below `most_cpus`.

    >>> parse_cpulist("0-2,8\\n")
    (0, 1, 2, 8)
    """
    cpus: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        if not (match := _PART.fullmatch(part)):
            raise InputError("cpuset", f"{text[:60]!r} is not a list of CPUs like 0-3,8")
        low, high = int(match[1]), int(match[2] or match[1])
        if not low <= high < most_cpus:
            raise InputError("cpuset", f"{text[:60]!r}: {part} is not a range of CPUs below {most_cpus}")
        cpus.update(range(low, high + 1))
    return tuple(sorted(cpus))


def format_cpulist(cpus: tuple[int, ...]) -> str:
    """The inverse of `parse_cpulist`.

    >>> format_cpulist((0, 1, 2, 8))
    '0-2,8'
    """
    ranges: list[list[int]] = []
    for cpu in cpus:
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def own_cpus(directories: list[JobDirectory]) -> tuple[int, ...]:
    """The job's own threads; empty if it only inherits those of the node."""
    for directory in directories:
        if cpus := _v2_cpus(directory.path) if directory.hierarchy.version == 2 else _v1_cpus(directory):
            return cpus
    return ()


def _v2_cpus(path: str) -> tuple[int, ...]:
    if _read(path, "cpuset.cpus"):
        return _effective(path)
    # The kubelet may pin the containers of a pod and not the pod itself: use the union of their sets.
    children = [child.path for child in _directories(path)]
    if children and all(_read(child, "cpuset.cpus") for child in children):
        return tuple(sorted({cpu for child in children for cpu in _effective(child)}))
    return ()


def _v1_cpus(directory: JobDirectory) -> tuple[int, ...]:
    # In cgroup v1 every group has a set. It is the job's own if the manager pins, or if it is smaller than the node.
    cpus = parse_cpulist(_read(directory.path, "cpuset.effective_cpus") or _read(directory.path, "cpuset.cpus"))
    node = parse_cpulist(_read(directory.hierarchy.root, "cpuset.cpus"))
    return cpus if directory.pins or len(cpus) < len(node) else ()


def _effective(path: str) -> tuple[int, ...]:
    return parse_cpulist(_read(path, "cpuset.cpus.effective") or _read(path, "cpuset.cpus"))


def _read(path: str, name: str) -> str:
    """The list; empty if the controller is not delegated or the group has just been removed."""
    try:
        return read_file(os.path.join(path, name)).decode("ascii", "backslashreplace").strip()
    except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
        return ""


def _directories(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
