"""PartitionName lines of slurm.conf -> partitions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from clustertwin.workload.slurm.site.conf_lines import ConfEntry
from clustertwin.workload.slurm.site.conf_settings import (
    ConfSettings,
    Value,
    file_and_line,
    lines_of,
    parsed,
    preempt_mode_of,
    yes_or_no,
)
from clustertwin.workload.slurm.site.quantities import (
    UNLIMITED,
    expand_hosts,
    parse_count,
    parse_limit_s,
    parse_memory_mb,
    parse_size,
    parse_weights,
)
from clustertwin.workload.slurm.site.slurm_site import SiteReport, SlurmPartition

_PARTITION_NO_EFFECT = {"hidden", "rootonly", "disablerootjobs", "allocnodes", "defcpupergpu", "suspendtime"}


_PARTITION_NOT_MODELLED = {
    "allowgroups", "exclusiveuser", "reqresv", "alternate", "maxmempernode", "cpubind",
    "selecttypeparameters", "overtimelimit", "powerdownonidle", "resumetimeout", "suspendtimeout", "defmempergpu",
    "gracetime",
}  # fmt: skip


def read_partitions(
    entries: list[ConfEntry], known: set[str], sets: dict[str, list[str]], cluster: ConfSettings
) -> tuple[SlurmPartition, ...]:
    partitions: dict[str, SlurmPartition] = {}
    for entry, values in lines_of(entries, "partitionname"):
        for name in parsed(entry, "partitionname", expand_hosts, values["partitionname"]):
            if name in partitions:
                raise entry.error(f"partition {name} is defined twice")
            partitions[name] = _partition(name, entry, values, _Members(known, sets), cluster.report)
    defaults = [name for name, partition in partitions.items() if partition.default]
    for name in defaults[:-1]:  # Slurm keeps the last
        cluster.report.add("assumed", f"partitions {', '.join(defaults)} are all Default=YES; the last one counts")
        partitions[name] = replace(partitions[name], default=False)
    return tuple(partitions.values())


@dataclass(frozen=True, slots=True)
class _Members:
    known: set[str]
    sets: dict[str, list[str]]

    def __call__(self, entry: ConfEntry, text: str) -> tuple[str, ...]:
        if text.upper() == "ALL":
            return tuple(sorted(self.known))
        names: dict[str, None] = {}
        for name in parsed(entry, "nodes", expand_hosts, text):
            names |= dict.fromkeys(self.sets.get(name, [name]))
        for name in names:
            if name not in self.known:
                raise entry.error(f"node {name} is in a partition, but no NodeName line defines it")
        return tuple(names)


def _partition(
    name: str, entry: ConfEntry, values: dict[str, str], members: _Members, report: SiteReport
) -> SlurmPartition:
    taken = {"partitionname", "nodes"}

    def get(key: str, parse: Callable[[str], Value], default: Value) -> Value:
        taken.add(key)
        return parsed(entry, key, parse, values[key]) if key in values else default

    both = get("priority", parse_count, 1)
    share = get("oversubscribe", str.upper, "") or get("shared", str.upper, "NO")
    if share.startswith(("YES", "FORCE")) and not share.endswith(":1"):
        report.add("not modelled", "OverSubscribe: jobs that share cores", file_and_line(entry))
    state = get("state", str.upper, "UP")
    if state not in ("UP", "DOWN", "DRAIN", "INACTIVE"):
        raise entry.error(f"State={state}: must be UP, DOWN, DRAIN or INACTIVE")
    if not values.get("nodes"):
        report.add("assumed", f"partition {name} has no nodes; its jobs never start", file_and_line(entry))
    partition = SlurmPartition(
        name,
        members(entry, values.get("nodes", "")),
        default=get("default", yes_or_no, False),
        max_time_s=get("maxtime", parse_limit_s, math.inf),
        default_time_s=get("defaulttime", parse_limit_s, math.nan),
        min_nodes=get("minnodes", parse_count, 0),
        max_nodes=get("maxnodes", _count, math.inf),
        max_cpus_per_node=get("maxcpuspernode", _count, math.inf),
        priority_tier=get("prioritytier", parse_count, both),
        priority_factor=get("priorityjobfactor", parse_count, both),
        allow_qos=get("allowqos", _names, ()),
        deny_qos=get("denyqos", _names, ()),
        allow_accounts=get("allowaccounts", _names, ()),
        deny_accounts=get("denyaccounts", _names, ()),
        qos=get("qos", str, ""),
        preempt_mode=get("preemptmode", preempt_mode_of, ""),
        memory_per_cpu_mb=get("defmempercpu", parse_memory_mb, 0.0),
        memory_per_node_mb=get("defmempernode", parse_memory_mb, 0.0),
        max_memory_per_cpu_mb=get("maxmempercpu", parse_memory_mb, 0.0),
        exclusive=share.startswith("EXCLUSIVE"),
        forces_sharing=share.startswith("FORCE"),
        least_loaded=get("lln", yes_or_no, False),
        schedules=state in ("UP", "DRAIN"),
        accepts=state in ("UP", "DOWN"),
        billing=get("tresbillingweights", parse_weights, {}),
    )
    for key in values.keys() - taken:
        if key in _PARTITION_NOT_MODELLED:
            report.add("not modelled", f"PartitionName {key}", file_and_line(entry))
        elif key not in _PARTITION_NO_EFFECT:
            report.add("unknown", f"PartitionName {key}", file_and_line(entry))
    return partition


def _count(text: str) -> float:
    return math.inf if text.lower() in UNLIMITED else float(parse_size(text))


def _names(text: str) -> tuple[str, ...]:
    return () if text.upper() == "ALL" else tuple(filter(None, text.split(",")))
