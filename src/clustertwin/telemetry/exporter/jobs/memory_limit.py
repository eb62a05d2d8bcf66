"""The directories of a job -> the most memory it can use: its own limit, or the node's memory."""

from __future__ import annotations

import os

from clustertwin.telemetry.exporter.collectors.memory import parse_meminfo
from clustertwin.telemetry.exporter.jobs.cgroup_layouts import JobDirectory
from clustertwin.telemetry.exporter.text.kernelfile import read_file

_FILES = {2: "memory.max", 1: "memory.limit_in_bytes"}


def memory_limit_bytes(rootfs: str, directories: list[JobDirectory]) -> int | None:
    """The lowest limit; None if neither the job's nor the node's is known. cgroup v1 writes 2**63 for no limit."""
    limits = [_limit(os.path.join(each.path, _FILES[each.hierarchy.version])) for each in directories]
    return min([limit for limit in (*limits, _node_memory(rootfs)) if limit], default=None)


def _limit(path: str) -> int:
    """A limit in bytes; 0 if there is none: the file is missing, or says `max`."""
    try:
        text = read_file(path).strip()
    except OSError:
        return 0
    return int(text) if text.isdigit() and len(text) <= 20 else 0


def _node_memory(rootfs: str) -> int:
    try:
        return parse_meminfo(read_file(os.path.join(rootfs, "proc/meminfo")), []).get(b"MemTotal", 0)
    except OSError:
        return 0
