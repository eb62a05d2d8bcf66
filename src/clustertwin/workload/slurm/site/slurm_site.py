"""The nouns of a Slurm site: nodes, partitions, QOS, associations, reservations and the scheduler's settings."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from clustertwin.workload.slurm.site.quantities import Gres

#: Why a setting of a site has no part in the simulation.
Concern = Literal["not modelled", "no effect on scheduling", "unknown", "assumed"]


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that are configured alike."""

    names: tuple[str, ...]
    cores: int
    threads_per_core: int = 1
    memory_mb: float = 1.0  # what jobs may use: RealMemory without MemSpecLimit
    gres: tuple[Gres, ...] = ()
    features: tuple[str, ...] = ()
    weight: int = 1
    available: bool = True


@dataclass(frozen=True, slots=True)
class SlurmPartition:
    """A partition: its nodes, limits, priority and defaults."""

    name: str
    nodes: tuple[str, ...]
    default: bool = False
    max_time_s: float = math.inf
    default_time_s: float = math.nan  # nan: the maximum
    min_nodes: int = 0
    max_nodes: float = math.inf
    max_cpus_per_node: float = math.inf
    priority_tier: int = 1
    priority_factor: int = 1
    allow_qos: tuple[str, ...] = ()  # empty: all
    deny_qos: tuple[str, ...] = ()
    allow_accounts: tuple[str, ...] = ()
    deny_accounts: tuple[str, ...] = ()
    qos: str = ""
    preempt_mode: str = ""  # empty: the cluster's
    memory_per_cpu_mb: float = 0.0
    memory_per_node_mb: float = 0.0
    max_memory_per_cpu_mb: float = 0.0  # 0: the cluster's
    exclusive: bool = False
    forces_sharing: bool = False  # OverSubscribe=FORCE
    least_loaded: bool = False
    schedules: bool = True
    accepts: bool = True
    billing: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UsageLimits:
    """What an association or a QOS allows; an absent TRES and `inf` mean no limit."""

    group_tres: dict[str, float] = field(default_factory=dict)
    group_jobs: float = math.inf
    group_submit: float = math.inf
    max_tres_job: dict[str, float] = field(default_factory=dict)
    min_tres_job: dict[str, float] = field(default_factory=dict)
    max_wall_s: float = math.inf
    max_jobs: float = math.inf  # of the association's user
    max_submit: float = math.inf
    max_tres_user: dict[str, float] = field(default_factory=dict)
    max_jobs_user: float = math.inf
    max_submit_user: float = math.inf
    max_tres_account: dict[str, float] = field(default_factory=dict)
    max_jobs_account: float = math.inf
    max_submit_account: float = math.inf


@dataclass(frozen=True, slots=True)
class Qos:
    """A quality of service."""

    name: str
    priority: int = 0
    preempt: tuple[str, ...] = ()
    preempt_mode: str = ""  # empty: the cluster's
    usage_factor: float = 1.0
    flags: tuple[str, ...] = ()
    limits: UsageLimits = UsageLimits()


#: Shares of an association that takes its parent's.
PARENT_SHARES = -1


@dataclass(frozen=True, slots=True)
class Association:
    """An account (without a user), or a user in an account."""

    account: str
    user: str = ""
    parent: str = "root"  # an account's; a user's parent is the account
    partition: str = ""
    shares: int = 1
    default_qos: str = ""
    qos: tuple[str, ...] = ()  # empty: inherited
    limits: UsageLimits = UsageLimits()


@dataclass(frozen=True, slots=True)
class AdvanceReservation:
    """Nodes kept for some users or accounts, or for maintenance, between two moments."""

    name: str
    nodes: tuple[str, ...]
    start_s: float
    end_s: float
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    maintenance: bool = False


@dataclass(frozen=True, slots=True)
class SwitchGroup:
    """A switch of the tree topology and the nodes or switches below it."""

    name: str
    nodes: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SchedulerParameters:
    """When and how deep slurmctld schedules; the names are Slurm's."""

    backfill: bool = True
    batch_sched_delay: float = 3.0
    sched_interval: float = 60.0
    default_queue_depth: int = 100
    assoc_limit_stop: bool = False
    bf_interval: float = 30.0
    bf_resolution: float = 60.0
    bf_window: float = 1440.0 * 60  # seconds
    bf_max_job_test: int = 500
    bf_max_job_user: int = 0
    bf_max_job_part: int = 0
    bf_max_job_start: int = 0
    bf_max_job_array_resv: int = 20
    bf_min_age_reserve: float = 0.0
    bf_min_prio_reserve: float = 0.0
    bf_node_space_size: int = 0  # 0: twice bf_max_job_test
    bf_window_linear: float = 0.0


@dataclass(frozen=True, slots=True)
class PriorityWeights:
    """The multifactor plug-in's weights and the fair-share calculation."""

    multifactor: bool = True
    age: float = 0.0
    fair_share: float = 0.0
    job_size: float = 0.0
    partition: float = 0.0
    qos: float = 0.0
    tres: dict[str, float] = field(default_factory=dict)
    max_age_s: float = 7 * 86_400.0
    half_life_s: float = 7 * 86_400.0
    calc_period_s: float = 300.0
    dampening: float = 1.0
    favor_small: bool = False
    fair_tree: bool = True
    normal_tres: bool = True
    size_relative_to_time: bool = False
    accrue_always: bool = False
    increase_only: bool = False
    max_tres: bool = False


#: Weights that can be tried and searched, in the order of sprio's fields, with their names in slurm.conf.
PRIORITY_WEIGHTS = {
    "age": "PriorityWeightAge",
    "fair_share": "PriorityWeightFairshare",
    "job_size": "PriorityWeightJobSize",
    "partition": "PriorityWeightPartition",
    "qos": "PriorityWeightQOS",
}


@dataclass(frozen=True, slots=True)
class Preemption:
    """Who preempts whom, and what happens to the preempted job."""

    kind: Literal["none", "partition", "qos"] = "none"
    mode: Literal["off", "cancel", "requeue", "suspend"] = "off"
    requeue: bool = True  # JobRequeue: without it a job is cancelled instead
    youngest_first: bool = False


@dataclass(frozen=True, slots=True)
class SiteReport:
    """What a site's files say that the simulation does not use, each with its count and first place."""

    counts: Counter[tuple[Concern, str]] = field(default_factory=Counter)
    places: dict[tuple[Concern, str], str] = field(default_factory=dict)

    def add(self, concern: Concern, what: str, place: str = "", count: int = 1) -> None:
        self.counts[concern, what] += count
        self.places.setdefault((concern, what), place)

    def of(self, *concerns: Concern) -> dict[str, int]:
        """The items of some concerns, in the order found."""
        return {what: n for (concern, what), n in self.counts.items() if not concerns or concern in concerns}

    def lines(self, *concerns: Concern) -> list[str]:
        """One line per item: `not modelled: Licenses (1, slurm.conf:84)`."""
        return [
            f"{concern}: {what} ({n:,}{', ' + place if (place := self.places[concern, what]) else ''})"
            for (concern, what), n in self.counts.items()
            if not concerns or concern in concerns
        ]


@dataclass(frozen=True, slots=True)
class SlurmSite:
    """A cluster as its administrators configured it."""

    name: str
    groups: tuple[NodeGroup, ...]
    partitions: tuple[SlurmPartition, ...]
    qos: tuple[Qos, ...] = ()
    associations: tuple[Association, ...] = ()
    reservations: tuple[AdvanceReservation, ...] = ()
    switches: tuple[SwitchGroup, ...] = ()
    scheduler: SchedulerParameters = SchedulerParameters()
    priority: PriorityWeights = PriorityWeights()
    preemption: Preemption = Preemption()
    whole_nodes: bool = False  # select/linear
    unit: Literal["core", "cpu"] = "core"
    memory_counts: bool = True
    enforce_limits: bool = False
    enforce_qos: bool = False
    enforce_associations: bool = False
    enforce_partition_limits: bool = False
    enforce_every_partition: bool = False  # of those that a job names; else one must let it in
    memory_per_cpu_mb: float = 0.0
    memory_per_node_mb: float = 0.0
    max_memory_per_cpu_mb: float = 0.0  # 0: no limit
    over_time_limit_s: float = 0.0
    report: SiteReport = field(default_factory=SiteReport)

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(name for group in self.groups for name in group.names)

    @property
    def cpus(self) -> int:
        return sum(len(group.names) * group.cores * group.threads_per_core for group in self.groups)

    @property
    def default_partition(self) -> str:
        chosen = [partition.name for partition in self.partitions if partition.default]
        return chosen[-1] if chosen else self.partitions[0].name
