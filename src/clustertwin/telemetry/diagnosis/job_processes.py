"""The processes of a job on this node: a job's id, its cgroup, or the root of a tree -> the ranks and their processes.

With a workload manager that uses cgroups, the job's cgroup lists them. Without, the job's id in the environment does.
Of several processes with one rank, the one that has loaded MPI counts, and then the one that used the most CPU time: a
shell that waits for its child, or a helper that a rank has forked, is not the rank.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.diagnosis.process_files import ProcessLook, look, maps_mpi, owner_of, stat_of, variables
from clustertwin.telemetry.exporter.jobs.cgroup_layouts import find_hierarchies, find_places
from clustertwin.telemetry.exporter.text.kernelfile import read_file

#: In this order: the launcher of the ranks knows better than Slurm, which may have started only the launcher.
LAUNCHER_RANKS = (b"PMI_RANK", b"PMIX_RANK", b"OMPI_COMM_WORLD_RANK", b"MV2_COMM_WORLD_RANK")
LAUNCHER_SIZES = (b"PMI_SIZE", b"OMPI_COMM_WORLD_SIZE", b"MV2_COMM_WORLD_SIZE")
#: Ranks of the job on this node, as the launcher counts them.
LOCAL_SIZES = (b"MPI_LOCALNRANKS", b"OMPI_COMM_WORLD_LOCAL_SIZE", b"MV2_COMM_WORLD_LOCAL_SIZE")
#: A batch script has number 0 too, and as many tasks as the job asked for: only srun starts ranks, and counts them.
SLURM_RANK, SLURM_SIZE = (b"SLURM_PROCID",), (b"SLURM_STEP_NUM_TASKS",)
SLURM_NODES = (b"SLURM_JOB_NUM_NODES", b"SLURM_NNODES")
JOB_IDS = (b"SLURM_JOB_ID", b"SLURM_JOBID")
#: A node has at most this many processes that are looked at.
MOST_SCANNED = 65_536
#: Of one job on this node. A job that forks without end is cut, and the evidence says so.
MOST_OF_JOB = 2048
#: Processes of a rank beside the one that counts.
MOST_BESIDE = 16


@dataclass(frozen=True, slots=True)
class RankProcess:
    pid: int
    started_ticks: int
    rank: int | None
    beside: tuple[int, ...] = ()  # other processes of the rank, such as a program that it has started


@dataclass(frozen=True, slots=True)
class JobProcesses:
    ranks: tuple[RankProcess, ...]
    size: int | None
    nodes: int  # of the whole job; 2 if there are others, and nothing tells how many
    refused: int  # processes of another user, or without the right to read them
    left_out: int = 0  # processes beyond `MOST_OF_JOB`
    pids: tuple[int, ...] = ()  # all of the owner, also those that are no rank
    groups: tuple[str, ...] = ()  # directories of the job's cgroup, if it is known


def find_processes(job: str, owner: int | None = None) -> JobProcesses:
    """The processes of a job. With `owner`, those of another user are refused. A look from inside a job is none."""
    listed = _in_cgroups(job)
    return _listed_or(listed, lambda: _with_job_id(job, owner), owner)


def find_group(directory: str, owner: int | None = None) -> JobProcesses:
    """The processes of a job whose cgroup is this directory."""
    return _listed_or({directory: _below(directory)}, list, owner)


def _listed_or(listed: dict[str, set[int]], others: Callable[[], list[int]], owner: int | None) -> JobProcesses:
    """The processes of these cgroups; without any, those that are found in another way."""
    pids = sorted(set[int]().union(*listed.values())) or others()
    own = os.getpid() in pids
    found = _ranks([pid for pid in pids if pid not in (0, os.getpid())], owner)
    # In version 2, a process that another PID namespace hides from this one has the number 0.
    found = replace(found, refused=found.refused + (0 in pids))
    # A hierarchy may have only some of the processes; and what a look from inside the job costs is not its work.
    groups = [
        path for path, inside in listed.items() if all(pid in inside or owner_of(pid) is None for pid in found.pids)
    ]
    return found if own else replace(found, groups=tuple(groups))


def find_tree(root: int, owner: int | None = None) -> JobProcesses:
    """The descendants of a process, such as mpiexec."""
    return _ranks(with_descendants([root]), owner)


def with_descendants(roots: Iterable[int], without: int = 0) -> list[int]:
    """These processes, and all that they have started, directly or not, except one and what it has started."""
    children: dict[int, list[int]] = defaultdict(list)
    for pid in _all_pids():
        if stat := stat_of(pid):
            children[stat.parent].append(pid)
    pids, waiting = dict[int, None](), list(roots)
    while waiting:
        if (pid := waiting.pop()) not in pids and pid != without:
            pids[pid] = None
            waiting += children.get(pid, [])
    return list(pids)


def is_same(process: RankProcess, seen: ProcessLook | None) -> bool:
    """Whether a look is of this process, and not of a later one with the same pid."""
    return seen is not None and seen.started_ticks == process.started_ticks


def _ranks(pids: list[int], owner: int | None) -> JobProcesses:
    pids, left_out = pids[:MOST_OF_JOB], max(len(pids) - MOST_OF_JOB, 0)
    uids = {pid: owner_of(pid) for pid in pids}
    present = {pid: uid for pid, uid in uids.items() if uid is not None}
    if owner is None:
        # Helpers of the workload manager run as root beside the processes of the job's owner.
        others = {uid for uid in present.values() if uid} or set(present.values())
        if len(others) > 1:
            raise SettingsError("the processes of this job belong to several users; name the job's owner")
        owner = next(iter(others), None)
    own = [pid for pid, uid in present.items() if uid == owner]
    names = LAUNCHER_RANKS + LAUNCHER_SIZES + LOCAL_SIZES + SLURM_RANK + SLURM_SIZE + SLURM_NODES
    looks = [(seen, variables(pid, names)) for pid in own if (seen := look(pid))]
    refused = len(present) - len(own)
    nodes = max((n for _, values in looks if (n := _first(values, SLURM_NODES)) is not None), default=1)
    for rank_names, size_names in ((LAUNCHER_RANKS, LAUNCHER_SIZES), (SLURM_RANK, SLURM_SIZE)):
        by_rank: dict[int, list[ProcessLook]] = defaultdict(list)
        for seen, values in looks:
            rank, started_by_srun = _first(values, rank_names), _first(values, SLURM_SIZE) is not None
            if rank is not None and (rank_names is not SLURM_RANK or started_by_srun):
                by_rank[rank].append(seen)
        if by_rank:
            chosen = [(rank, _main(same), same) for rank, same in sorted(by_rank.items())]
            size = next((n for _, values in looks if (n := _first(values, size_names)) is not None), None)
            local = next((n for _, values in looks if (n := _first(values, LOCAL_SIZES)) is not None), None)
            if size is not None and local is not None and local < size:
                nodes = max(nodes, 2)  # a launcher without Slurm does not say how many
            ranks = tuple(
                RankProcess(main.pid, main.started_ticks, rank, _beside(main, same)) for rank, main, same in chosen
            )
            return JobProcesses(ranks, size, nodes, refused, left_out, tuple(own))
    ranks = tuple(RankProcess(seen.pid, seen.started_ticks, None) for seen, _ in looks)
    return JobProcesses(ranks, None, nodes, refused, left_out, tuple(own))


def _beside(main: ProcessLook, same: list[ProcessLook]) -> tuple[int, ...]:
    return tuple(seen.pid for seen in same if seen.pid != main.pid)[:MOST_BESIDE]


def _main(looks: list[ProcessLook]) -> ProcessLook:
    if len(looks) == 1:
        return looks[0]
    return max(looks, key=lambda seen: (maps_mpi(seen.pid), seen.cpu_s, -seen.pid))


def _first(values: dict[bytes, bytes], names: tuple[bytes, ...]) -> int | None:
    """The first of these variables that has a number. The owner of a process sets them, so they may be anything."""
    found = (values[name] for name in names if values.get(name, b"").isdigit())
    return next((int(value) for value in found if len(value) <= 7), None)


def _in_cgroups(job: str) -> dict[str, set[int]]:
    """Directory of the job's cgroup in each hierarchy -> its processes."""
    listed: dict[str, set[int]] = {}
    for place in find_places(find_hierarchies("/")):
        for directory in place.jobs():
            if directory.job == job:
                listed[directory.path] = _below(directory.path)
    return listed


def _below(directory: str) -> set[int]:
    """The processes of a cgroup and of the groups in it."""
    groups = (group for group, _, files in os.walk(directory) if "cgroup.procs" in files)
    return {pid for group in groups for pid in _listed(f"{group}/cgroup.procs")}


def _listed(path: str) -> list[int]:
    try:
        return [int(pid) for pid in read_file(path).split()]
    except OSError:
        return []  # the group has ended


def _with_job_id(job: str, owner: int | None) -> list[int]:
    """Anyone can put the id of a job into an environment, so with `owner` the processes of others are not read."""
    wanted = job.encode()
    pids = [pid for pid in _all_pids() if owner is None or owner_of(pid) == owner]
    return [pid for pid in pids if wanted in variables(pid, JOB_IDS).values()]


def _all_pids() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())[:MOST_SCANNED]
