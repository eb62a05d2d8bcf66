"""Where workload managers put the cgroups of jobs: a table of layouts -> the job directories of this node.

A layout names a place (a glob below the root of a hierarchy) whose children are jobs, and a pattern that extracts
the job's id from the name of a child. A search for places costs more than listing one, so places are searched rarely
(`find_places`) and listed at every scrape (`Place.jobs`).
"""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of one manager. `pins`: it sets CPU sets itself, so even one that spans the node counts (v1)."""

    manager: str
    place: str
    job: re.Pattern[str]  # group 1 is the id
    pins: bool = False


_POD = re.compile(r"kubepods(?:-burstable|-besteffort)?-pod(.+)\.slice")
_POD_CGROUPFS = re.compile(r"pod(.+)")
_CONDOR = re.compile(r"condor_.*?(slot\d.*)")
_UNIT = re.compile(r"(.+\.(?:service|scope|slice))")

#: If two layouts match a place, the first one is used.
LAYOUTS: tuple[Layout, ...] = (
    # Slurm, cgroup v2: job_42, or since 26.05 the job's SLUID; `system` holds slurmstepd itself. With several
    # slurmd on a host the scope carries the node's name.
    Layout("slurm", "system.slice/*slurmstepd.scope", re.compile(r"(?!system$)(?:job_)?([^.]+)"), pins=True),
    Layout("slurm", "slurm*/uid_*", re.compile(r"job_(.+)"), pins=True),  # cgroup v1
    Layout("htcondor", "htcondor", _CONDOR),
    Layout("htcondor", "system.slice/htcondor", _CONDOR),
    Layout("htcondor", "system.slice/condor.service/htcondor", _CONDOR),
    # Kubernetes with the systemd driver, then with cgroupfs; guaranteed pods sit at the top.
    Layout("kubernetes", "kubepods.slice", _POD),
    Layout("kubernetes", "kubepods.slice/kubepods-*.slice", _POD),
    Layout("kubernetes", "kubepods", _POD_CGROUPFS),
    Layout("kubernetes", "kubepods/b*", _POD_CGROUPFS),
    Layout("systemd", "user.slice", re.compile(r"(user-\d+\.slice)")),
    Layout("systemd", "*.slice", _UNIT),
)

#: Slices whose units are not jobs, or are another layout's.
NOT_JOBS = frozenset({"system.slice", "user.slice", "kubepods.slice"})

#: cgroup v1 controllers we read, by the names under which distributions mount them.
V1_CONTROLLERS = ("cpuset", "cpuacct", "cpu,cpuacct", "cpu", "memory")


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted tree of cgroups."""

    root: str
    version: int


@dataclass(frozen=True, slots=True)
class JobDirectory:
    """One directory that belongs to a job; a hybrid host has several for one job."""

    manager: str
    job: str
    path: str
    hierarchy: Hierarchy
    pins: bool


@dataclass(slots=True)
class Place:
    """A directory whose children are jobs, and its last listing."""

    hierarchy: Hierarchy
    layout: Layout
    path: str
    _names: list[str] = field(default_factory=list)
    _jobs: list[JobDirectory] = field(default_factory=list)

    def jobs(self) -> list[JobDirectory]:
        """The jobs now; the same list object as before if nothing has changed."""
        try:
            names = os.listdir(self.path)
        except (FileNotFoundError, NotADirectoryError):
            names = []  # the manager removed the place with its last job
        if names != self._names:
            self._names = names
            self._jobs = [
                self._directory(name, match[1]) for name in names if (match := self.layout.job.fullmatch(name))
            ]
        return self._jobs

    def _directory(self, name: str, job: str) -> JobDirectory:
        if self.layout.job is _POD:
            job = job.replace("_", "-")  # the systemd driver writes the dashes of a pod's uid as underscores
        path = os.path.join(self.path, name)
        return JobDirectory(self.layout.manager, job, path, self.hierarchy, self.layout.pins)


def find_hierarchies(rootfs: str) -> list[Hierarchy]:
    """The v2 tree first, if there is one (also on a hybrid host), then the v1 controllers."""
    top = os.path.join(rootfs, "sys/fs/cgroup")
    for v2 in (top, os.path.join(top, "unified")):
        if os.path.exists(os.path.join(v2, "cgroup.controllers")):
            hierarchies = [Hierarchy(v2, 2)]
            break
    else:
        hierarchies = []
    if hierarchies and hierarchies[0].root == top:
        return hierarchies
    mounts = {os.path.realpath(path): path for name in V1_CONTROLLERS if os.path.isdir(path := os.path.join(top, name))}
    return hierarchies + [Hierarchy(path, 1) for path in mounts.values()]


def find_places(hierarchies: list[Hierarchy]) -> list[Place]:
    """Every place of every layout that exists now."""
    places: dict[str, Place] = {}
    for hierarchy in hierarchies:
        for layout in LAYOUTS:
            for name in sorted(glob.glob(layout.place, root_dir=hierarchy.root)):
                path = os.path.join(hierarchy.root, name)
                if not (layout.place == "*.slice" and name in NOT_JOBS):
                    places.setdefault(path, Place(hierarchy, layout, path))
    return list(places.values())
