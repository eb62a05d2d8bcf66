"""A job's directories -> the user id it runs under: from its path, or from its processes."""

from __future__ import annotations

import os
import re

from clustertwin.telemetry.exporter.jobs.cgroup_layouts import JobDirectory
from clustertwin.telemetry.exporter.kernelfile import read_file

_IN_PATH = re.compile(r"/(?:uid_|user-)(\d+)(?:\.slice)?(?:/|$)")
_UID = re.compile(rb"^Uid:\s+(\d+)", re.M)

#: A job's tree can be large and its owner is asked for in passing: look at this many groups at most.
MAX_GROUPS = 64


def owner_uid(rootfs: str, directories: list[JobDirectory]) -> int | None:
    """The owner's user id; None while nothing tells. A manager's own helpers run as root: any other user wins."""
    for directory in directories:
        if match := _IN_PATH.search(directory.path):
            return int(match[1])
    found: int | None = None
    for pid in _processes(directories[0].path):
        try:
            match_uid = _UID.search(read_file(os.path.join(rootfs, "proc", pid, "status")))
        except OSError:
            continue  # it ended meanwhile
        if match_uid:
            found = int(match_uid[1])
            if found:
                return found
    return found


def _processes(path: str) -> list[str]:
    """One process of every group below the job, the manager's own `system` groups left out."""
    pids = []
    for count, (group, children, _) in enumerate(os.walk(path)):
        if count == MAX_GROUPS:
            break
        children[:] = sorted(child for child in children if child != "system")
        try:
            first = read_file(os.path.join(group, "cgroup.procs")).split(maxsplit=1)[:1]
        except OSError:
            continue
        pids += [pid.decode("ascii", "replace") for pid in first if pid.isdigit()]
    return pids
