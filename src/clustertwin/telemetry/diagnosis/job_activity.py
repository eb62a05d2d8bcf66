"""What a job does as a whole between two moments: its processes and cgroup -> CPU time, and what was not seen.

A program that starts and ends between two looks is in neither. Its CPU time is: the cgroup of the job counts it, and
without a cgroup the process that waited for it does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from clustertwin.telemetry.diagnosis.evidence import UNSEEN, USED
from clustertwin.telemetry.diagnosis.job_processes import JobProcesses, with_descendants
from clustertwin.telemetry.diagnosis.kernel import job_cgroup
from clustertwin.telemetry.diagnosis.process_files import ProcessStat, ignores_children, stat_of


@dataclass(frozen=True, slots=True)
class WholeJob:
    """A job at one moment: the CPU time of its cgroup, or its processes if no cgroup is known."""

    group_cpu_s: float | None
    members: Mapping[int, ProcessStat]
    deaf: frozenset[int] = frozenset()  # those that do not wait for their children, whose CPU time is lost


def moment(processes: JobProcesses) -> WholeJob:
    """The job now, with the processes that it has started since it was found."""
    if (cpu_s := job_cgroup.cpu_s(processes.groups)) is not None:
        return WholeJob(cpu_s, {})
    ranks = (pid for rank in processes.ranks for pid in (rank.pid, *rank.beside))
    pids = with_descendants({*processes.pids, *ranks}, without=os.getpid())
    members = {pid: stat for pid in pids if (stat := stat_of(pid))}
    return WholeJob(None, members, frozenset(filter(ignores_children, members)))


def activity(first: WholeJob, last: WholeJob, unread: int) -> dict[str, int]:
    """The counters of a job between two moments. `unread` processes were found and could not be followed."""
    if first.group_cpu_s is not None and last.group_cpu_s is not None:
        return {USED: round(1e6 * max(last.group_cpu_s - first.group_cpu_s, 0.0))}
    if first.group_cpu_s is not None or last.group_cpu_s is not None:
        return {USED: 0, UNSEEN: 1}  # the cgroup has gone
    kept = {pid for pid, stat in first.members.items() if _is_same(stat, last.members.get(pid))}
    deaf = (first.deaf | last.deaf) & kept
    gone = {pid: stat for pid, stat in first.members.items() if pid not in kept}
    lost = [stat for stat in gone.values() if stat.parent not in kept - deaf]
    # A process that ends takes its CPU time along, unless one of the job has waited for it. Its parent may have done
    # so before it ended, too, and be waited for: then the time is in that of the ancestor that is left.
    taken_along = [stat for stat in lost if _ancestor_left(stat, gone) not in kept - deaf]
    used_s = _total_s(last.members.values()) + _total_s(taken_along) - _total_s(first.members.values())
    return {USED: round(1e6 * max(used_s, 0.0)), UNSEEN: unread + len(lost) + len(deaf)}


def _ancestor_left(stat: ProcessStat, gone: Mapping[int, ProcessStat]) -> int:
    """The nearest ancestor of a process that has not ended."""
    parent = stat.parent
    for _ in gone:  # no more steps than that: pids that are used again could lead in a circle
        if parent not in gone:
            break
        parent = gone[parent].parent
    return parent


def _is_same(stat: ProcessStat, later: ProcessStat | None) -> bool:
    return later is not None and later.started_ticks == stat.started_ticks


def _total_s(stats: Iterable[ProcessStat]) -> float:
    return sum(stat.cpu_s + stat.children_cpu_s for stat in stats)
