"""The live queue as a site sees it: an answer of squeue -> jobs that run, with their nodes, and jobs that wait."""

from __future__ import annotations

from dataclasses import dataclass

from clustertwin.core.errors import InputError
from clustertwin.workload.formats.parsing.slurm_fields import parse_duration
from clustertwin.workload.simulator.forecast.squeue import COMMAND, FORMAT, HELD, LONGEST_S
from clustertwin.workload.slurm.joblog.job_table import SlurmJob
from clustertwin.workload.slurm.site.quantities import (
    Gres,
    expand_hosts,
    parse_count,
    parse_gres,
    parse_memory_mb,
    parse_size,
)

#: After the fields of `FORMAT`: partition, QOS, account, priority, memory, GRES on each node, nodes, sharing, features.
SITE_FORMAT = f"{FORMAT}|%P|%q|%a|%Q|%m|%b|%N|%h|%f"
SITE_COMMAND = (*COMMAND[:-1], f"--format={SITE_FORMAT}")
FIELDS = 17
#: Jobs that no scheduling decision can start: besides `HELD`, tasks beyond the limit of their array.
HELD_HERE = (*HELD, "JobArrayTaskLimit")
_NONE = ("", "N/A", "(null)")


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A job of the queue. Its request counts from its start; `job.limit_s` is the whole limit."""

    name: str  # Slurm's id
    job: SlurmJob
    priority: int
    elapsed_s: float
    nodes: tuple[str, ...]  # empty while it waits


@dataclass(frozen=True, slots=True)
class SiteQueue:
    """The queue at one moment; waiting jobs stand in the order of Slurm's priorities."""

    running: tuple[LiveJob, ...]
    waiting: tuple[LiveJob, ...]
    held: int

    @property
    def jobs(self) -> tuple[LiveJob, ...]:
        return (*self.running, *self.waiting)


def parse_site_queue(text: str, unlimited_s: float = 365 * 86_400.0) -> SiteQueue:
    """The queue in an answer of squeue (`SITE_FORMAT`). A job without a time limit gets a limit of a year."""
    running: list[LiveJob] = []
    waiting: list[LiveJob] = []
    held = 0
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.strip().split("|", FIELDS - 1)  # a constraint may contain "|": it stands last
        if len(fields) != FIELDS:
            raise InputError("squeue", f"{len(fields)} fields, a site needs {FIELDS}: {SITE_FORMAT}", number)
        if fields[2] == "PENDING" and fields[7].strip("()") in HELD_HERE:
            held += 1
            continue
        try:
            live = _live_job(fields, number, unlimited_s)
        except (ValueError, OverflowError) as error:
            raise InputError("squeue", str(error), number) from error
        (running if fields[2] == "RUNNING" else waiting).append(live)
    return SiteQueue(tuple(running), tuple(waiting), held)


def _live_job(fields: list[str], number: int, unlimited_s: float) -> LiveJob:
    (name, user, _, cpus, nodes, limit, elapsed, _, partition, qos, account, priority, memory, gres, hosts, sharing,
     features) = fields  # fmt: skip
    limit_s = parse_duration(limit)
    elapsed_s, count = max(parse_duration(elapsed), 0.0), parse_size(nodes)
    if not max(limit_s, elapsed_s) < LONGEST_S:
        raise ValueError("a time is too long")
    base = name.partition("_")[0]
    job = SlurmJob(
        number, 0.0, float("inf"), user, "" if account in _NONE else account,
        tuple(filter(None, partition.split(","))), "" if qos in _NONE else qos,
        limit_s if limit_s > 0 else unlimited_s, nodes_min=count, nodes_max=count, tasks=parse_size(cpus),
        memory_per_node_mb=parse_memory_mb(memory), gres=gres_of(gres),
        constraint="" if features in _NONE else features, exclusive=sharing == "NO",
        array=parse_count(base) if "_" in name and base.isdigit() else 0,
    )  # fmt: skip
    held_nodes = () if hosts in _NONE else tuple(expand_hosts(hosts))
    return LiveJob(name, job, parse_count(priority), elapsed_s, held_nodes)


def gres_of(text: str) -> tuple[Gres, ...]:
    """squeue's `%b` -> the GRES on each node.

    >>> gres_of("gres:gpu:v100:2"), gres_of("gres/gpu"), gres_of("N/A")
    ((Gres(name='gpu', type='v100', count=2),), (Gres(name='gpu', type='', count=1),), ())
    """
    return () if text in _NONE else parse_gres(text)
