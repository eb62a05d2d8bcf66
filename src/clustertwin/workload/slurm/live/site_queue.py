"""The live queue as a site sees it: an answer of squeue -> jobs that run, with their nodes, and jobs that wait."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from clustertwin.core.errors import InputError
from clustertwin.workload.formats.parsing.slurm_fields import parse_duration
from clustertwin.workload.simulator.forecast.squeue import (
    COMMAND,
    FORMAT,
    HELD,
    LONGEST_S,
    UNLIMITED_S,
    is_held,
    read_squeue,
)
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


def read_site_queue() -> SiteQueue:
    """Ask squeue on this machine.

    Where Slurm does not check accounts, a user may write anything into one, also what looks like other fields or jobs.
    Only squeue and this function know the mark that follows each field.
    """
    mark = f"|{secrets.token_hex(8)}|"
    return parse_site_queue(read_squeue(site_command(mark)), mark)


def site_command(mark: str) -> tuple[str, ...]:
    """The command that prints the queue with this mark after each field."""
    form = "".join(field + mark for field in SITE_FORMAT.split("|"))
    return (*COMMAND[:-1], f"--format={form}")


def parse_site_queue(text: str, mark: str = "") -> SiteQueue:
    """The queue in an answer of squeue: a line of `SITE_FORMAT` for each job, or its fields with a mark after each.

    A job without a time limit gets a limit of a year.
    """
    running: list[LiveJob] = []
    waiting: list[LiveJob] = []
    held = 0
    for number, fields in enumerate(_records(text, mark), 1):
        if len(fields) != FIELDS:
            raise InputError("squeue", f"{len(fields)} fields, a site needs {FIELDS}: {SITE_FORMAT}", number)
        if fields[2] == "PENDING" and is_held(fields[7], HELD_HERE):
            held += 1
            continue
        try:
            live = _live_job(fields, number)
        except (ValueError, OverflowError) as error:
            raise InputError("squeue", str(error), number) from error
        (running if fields[2] == "RUNNING" else waiting).append(live)
    return SiteQueue(tuple(running), tuple(waiting), held)


def _records(text: str, mark: str) -> Iterator[list[str]]:
    if not mark:
        for line in text.splitlines():
            yield line.strip().split("|", FIELDS - 1)  # a constraint may contain "|": it stands last
        return
    fields = text.split(mark)
    for i in range(0, len(fields) - 1, FIELDS):
        yield [fields[i].removeprefix("\n"), *fields[i + 1 : i + FIELDS]]  # the end of the record before


def _live_job(fields: list[str], number: int) -> LiveJob:
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
        limit_s if limit_s > 0 else UNLIMITED_S, nodes_min=count, nodes_max=count, tasks=parse_size(cpus),
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
