"""Jobs as Slurm sees them: what sbatch asked for, and, in a log, what happened -> rows of one table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from clustertwin.workload.slurm.site.quantities import Gres
from clustertwin.workload.slurm.site.slurm_site import SiteReport


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job, or one task of an array. Times count seconds from the log's epoch; nan means not given."""

    id: int
    submit_s: float
    run_s: float  # how long it runs if nothing ends it; inf: until its limit
    user: str = ""
    account: str = ""  # empty: the user's default
    partitions: tuple[str, ...] = ()  # empty: the default
    qos: str = ""
    limit_s: float = math.nan
    begin_s: float = -math.inf  # not eligible before
    nodes_min: int = 0
    nodes_max: int = 0  # 0: as many as the tasks need
    tasks: int = 0
    cpus_per_task: int = 1
    tasks_per_node: int = 0
    memory_per_node_mb: float = math.nan  # 0: all memory of the node
    memory_per_cpu_mb: float = math.nan
    memory_as_recorded: bool = False  # by sacct, which prints all memory of a node as that of the partition's first
    gres: tuple[Gres, ...] = ()  # on each node
    constraint: str = ""
    exclusive: bool = False
    nodelist: str = ""  # nodes that it must have; ranges of users' texts are expanded when they are needed
    exclude: str = ""
    nice: int = 0
    dependency: str = ""
    array: int = 0  # id of the array's first task; 0: no array
    array_limit: int = 0  # tasks that may run at once; 0: all
    reservation: str = ""
    requeue: bool | None = None  # None: the site's JobRequeue
    succeeds: bool = True
    cancel_s: float = math.inf  # withdrawn from the queue then, if it waits
    start_s: float = math.nan  # recorded
    end_s: float = math.nan  # recorded
    nodes: tuple[str, ...] = ()  # recorded; empty: not given


@dataclass(frozen=True, slots=True)
class SlurmLog:
    """Jobs in the order of their submission; `report` says what the log needs and the model lacks."""

    jobs: tuple[SlurmJob, ...]
    epoch_s: float = 0.0
    report: SiteReport = field(default_factory=SiteReport)
    local: bool = False  # its times have no zone: `epoch_s` is the local time of the site, counted as UTC

    def __len__(self) -> int:
        return len(self.jobs)

    def first(self, count: int) -> SlurmLog:
        """The jobs submitted first."""
        return replace(self, jobs=self.jobs[:count])


def in_order(jobs: Sequence[SlurmJob], epoch_s: float = 0.0, report: SiteReport | None = None) -> SlurmLog:
    """A log of these jobs; those submitted at the same moment keep the order of their ids."""
    return SlurmLog(tuple(sorted(jobs, key=lambda job: (job.submit_s, job.id))), epoch_s, report or SiteReport())
