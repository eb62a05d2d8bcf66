"""The directories of a job -> the user id of its owner: from the path, or from its processes."""

from __future__ import annotations

import os
import re

from clustertwin.telemetry.exporter.jobs.cgroup_layouts import JobDirectory
from clustertwin.telemetry.exporter.text.kernelfile import read_file

_IN_PATH = re.compile(r"/(?:uid_|user-)(\d+)(?:\.slice)?(?:/|$)")
_UID = re.compile(rb"^Uid:\s+(\d+)", re.M)

#: The tree of a job can be large: read at most this many groups.
MAX_GROUPS = 64


def owner_uid(rootfs: str, directories: list[JobDirectory]) -> int | None:
    """The user id, or None if it is not known yet. Helpers of the manager run as root, so other users come first."""
    for directory in directories:
        if match := _IN_PATH.search(directory.path):
            return int(match[1])
    uid: int | None = None
    for pid in _processes(directories[0].path):
        try:
            match_uid = _UID.search(read_file(os.path.join(rootfs, "proc", pid, "status")))
        except OSError:
            continue  # the process has ended
        if match_uid:
            uid = int(match_uid[1])
            if uid:
                return uid
    return uid


def _processes(path: str) -> list[str]:
    """One process of every group below the job, except the `system` groups of the manager."""
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
