"""slurm.conf, gres.conf and topology.conf -> a site without accounts; a setting that is not used is reported."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from clustertwin.workload.slurm.site.conf_lines import ConfEntry, SiteError, read_entries
from clustertwin.workload.slurm.site.quantities import (
    UNLIMITED,
    expand_hosts,
    parse_count,
    parse_gres,
    parse_limit_s,
    parse_memory_mb,
    parse_weights,
)
from clustertwin.workload.slurm.site.slurm_site import (
    NodeGroup,
    Preemption,
    PriorityWeights,
    SchedulerParameters,
    SiteReport,
    SlurmPartition,
    SlurmSite,
    SwitchGroup,
)

Value = TypeVar("Value")

#: Keys of the whole cluster that change when or where jobs start, and that the simulation leaves out.
NOT_MODELLED = {
    "licenses", "jobsubmitplugins", "preemptexempttime", "maxjobcount", "maxarraysize", "suspendprogram",
    "resumeprogram", "suspendtime", "powerparameters", "burstbuffertype", "federationparameters", "mcsplugin",
    "priorityusageresetperiod", "prioritysitefactorplugin", "jobdefaults", "dependencyparameters",
    "resvoverrun", "healthcheckprogram", "prolog", "epilog", "prologslurmctld", "epilogslurmctld", "completewait",
    "maxmempercpu", "maxmempernode", "topologyparam", "nodefeaturesplugins", "corespecplugin",
    "schedulertimeslice",
}  # fmt: skip
#: Beginnings of keys that do not change when or where jobs start.
NO_EFFECT = (
    "accounting", "acctgather", "allowspecresourcesusage", "auth", "backup", "batchstarttimeout", "cli", "cloud",
    "clustername", "comm", "control", "core", "cpufreq", "cred", "crypto", "debugflags", "defaultstorage",
    "disablerootjobs", "eioTimeout", "enforce", "ext_sensors", "firstjobid", "frontend", "getenvtimeout", "grestypes",
    "groupupdate", "gpufreqdef", "healthcheck", "inactivelimit", "interactive", "job", "keepalive", "kill", "launch",
    "logtimeformat", "mail", "maxdbdmsgs", "maxstepcount", "maxtaskspernode", "messagetimeout", "minjobage", "mpi",
    "overtimelimit", "plugin", "plugstack", "power", "prepplugins", "privatedata", "proctrack", "prologflags",
    "prologepilogtimeout", "propagate", "rebootprogram", "reconfigflags", "requeueexit", "resumetimeout", "resumerate",
    "resumefail", "returntoservice", "route", "sallocdefaultcommand", "sbcast", "slurm", "srun", "statesavelocation",
    "stateSave", "suspend", "switch", "task", "tcptimeout", "tmpfs", "topology", "trackwckey", "treewidth",
    "unkillable", "usepam", "vsizefactor", "waittime", "x11", "checkpoint", "cachegroups", "fastschedule", "licenses",
    "allow", "validate", "bcast", "data", "node", "mcs",
)  # fmt: skip
_NO_EFFECT = tuple(word.lower() for word in NO_EFFECT)
_DOWN = ("down", "drain", "fail", "future", "cloud", "maint", "power_down")


@dataclass(frozen=True, slots=True)
class _Cluster:
    """Entries of slurm.conf by kind, with the report that they fill."""

    settings: dict[str, tuple[str, ConfEntry]]
    report: SiteReport

    def get(self, key: str, parse: Callable[[str], Value], default: Value) -> Value:
        if key not in self.settings:
            return default
        text, entry = self.settings[key]
        return _parsed(entry, key, parse, text)

    def words(self, key: str) -> list[str]:
        return [word.strip() for word in self.settings[key][0].split(",")] if key in self.settings else []


def read_slurm_conf(path: Path) -> SlurmSite:
    """A slurm.conf, with gres.conf and topology.conf beside it where they exist."""
    report = SiteReport()
    entries = read_entries(path)
    cluster = _Cluster(_settings(entries, report), report)
    groups = _groups(entries, report)
    known = {name for group in groups for name in group.names}
    if not groups:
        raise SiteError(path, "no NodeName line; a site needs nodes")
    sets = _node_sets(entries, groups)
    partitions = _partitions(entries, known, sets, cluster)
    if not partitions:
        raise SiteError(path, "no PartitionName line; a site needs a partition")
    _check_gres(path.with_name("gres.conf"), groups, report)
    _report_settings(cluster)
    return SlurmSite(
        cluster.get("clustername", str, ""),
        groups,
        partitions,
        switches=_switches(path.with_name("topology.conf"), known, cluster),
        scheduler=_scheduler(cluster),
        priority=_priority(cluster),
        preemption=_preemption(cluster),
        report=report,
        **_selection(cluster),
        **_enforcement(cluster),
    )


def _parsed(entry: ConfEntry, key: str, parse: Callable[[str], Value], text: str) -> Value:
    try:
        return parse(text)
    except (ValueError, OverflowError) as error:
        raise entry.error(f"{key}={text[:60]}: {error}") from error


_LINES = {"nodename", "partitionname", "downnodes", "nodeset", "frontendname", "switchname", "name"}


def _settings(entries: Iterable[ConfEntry], report: SiteReport) -> dict[str, tuple[str, ConfEntry]]:
    settings: dict[str, tuple[str, ConfEntry]] = {}
    for entry in entries:
        if entry.kind in _LINES:
            continue
        for key, value in entry.pairs:
            if key in settings:
                report.add("assumed", f"{key} is set more than once; the last value counts", _place(entry))
            settings[key] = (value, entry)
    return settings


def _place(entry: ConfEntry) -> str:
    return f"{Path(entry.file).name}:{entry.line}"


def _lines(entries: Iterable[ConfEntry], kind: str) -> Iterable[tuple[ConfEntry, dict[str, str]]]:
    """The lines of a kind with the values of the DEFAULT lines before them."""
    defaults: dict[str, str] = {}
    for entry in entries:
        if entry.kind != kind:
            continue
        values = entry.values
        if values[kind].upper() == "DEFAULT":
            defaults |= {key: value for key, value in values.items() if key != kind}
        else:
            yield entry, defaults | values


_NODE_KEYS = {
    "nodename", "cpus", "procs", "boards", "sockets", "socketsperboard", "corespersocket", "threadspercore",
    "realmemory", "memspeclimit", "corespeccount", "gres", "feature", "features", "weight", "state",
}  # fmt: skip
_NODE_NO_EFFECT = {"nodeaddr", "nodehostname", "port", "tmpdisk", "reason", "cpuspeclist", "bcastaddr"}


def _groups(entries: list[ConfEntry], report: SiteReport) -> tuple[NodeGroup, ...]:
    groups: list[NodeGroup] = []
    seen: dict[str, str] = {}
    for entry, values in _lines(entries, "nodename"):
        group = _group(entry, values, report)
        for name in group.names:
            if name in seen:
                raise entry.error(f"node {name} is already defined at {seen[name]}")
            seen[name] = _place(entry)
        for key in values.keys() - _NODE_KEYS - _NODE_NO_EFFECT:
            report.add("unknown", f"NodeName {key}", _place(entry))
        groups.append(group)
    down: set[str] = set()
    for entry, values in _lines(entries, "downnodes"):
        if values.get("state", "down").lower().startswith(_DOWN):
            down |= set(_parsed(entry, "downnodes", expand_hosts, values["downnodes"]))
    if down - seen.keys():
        raise SiteError(
            "slurm.conf", f"DownNodes names {sorted(down - seen.keys())[0]}, which no NodeName line defines"
        )
    return tuple(part for group in groups for part in _split_down(group, down))


def _split_down(group: NodeGroup, down: set[str]) -> list[NodeGroup]:
    if not down & set(group.names):
        return [group]
    runs: list[NodeGroup] = []
    for name in group.names:  # the order of nodes decides where jobs are placed
        available = group.available and name not in down
        if runs and runs[-1].available == available:
            runs[-1] = replace(runs[-1], names=(*runs[-1].names, name))
        else:
            runs.append(replace(group, names=(name,), available=available))
    return runs


def _group(entry: ConfEntry, values: dict[str, str], report: SiteReport) -> NodeGroup:
    def number(key: str, default: int) -> int:
        return _parsed(entry, key, parse_count, values[key]) if key in values else default

    boards = number("boards", 1)
    sockets = number("socketsperboard", 0) * boards or number("sockets", 0)
    threads = max(number("threadspercore", 1), 1)
    cores_per_socket = number("corespersocket", 1)
    cpus = number("cpus", number("procs", 0))
    if sockets or "corespersocket" in values:
        cores = max(sockets, 1) * cores_per_socket
        if cpus and cpus == cores and threads > 1:
            threads = 1
        elif cpus and cpus != cores * threads:
            report.add(
                "assumed", f"CPUs={cpus} differs from sockets × cores × threads; using {cores * threads}", _place(entry)
            )
    else:
        cores, threads = max(cpus, 1) // threads or 1, threads
    memory = _parsed(entry, "realmemory", parse_memory_mb, values.get("realmemory", "1"))
    reserved = number("memspeclimit", 0)
    state = values.get("state", "unknown").lower()
    return NodeGroup(
        tuple(_parsed(entry, "nodename", expand_hosts, values["nodename"])),
        cores - number("corespeccount", 0),
        threads,
        memory - reserved,
        _parsed(entry, "gres", parse_gres, values.get("gres", "")),
        tuple(filter(None, values.get("features", values.get("feature", "")).split(","))),
        number("weight", 1),
        not state.startswith(_DOWN),
    )


def _node_sets(entries: list[ConfEntry], groups: tuple[NodeGroup, ...]) -> dict[str, list[str]]:
    sets: dict[str, list[str]] = {}
    for entry, values in _lines(entries, "nodeset"):
        names = _parsed(entry, "nodes", expand_hosts, values.get("nodes", ""))
        feature = values.get("feature")
        names += [name for group in groups if feature in group.features for name in group.names]
        sets[values["nodeset"]] = names
    return sets


_PARTITION_NO_EFFECT = {"hidden", "rootonly", "disablerootjobs", "allocnodes", "defcpupergpu", "suspendtime"}
_PARTITION_NOT_MODELLED = {
    "allowgroups", "exclusiveuser", "reqresv", "alternate", "maxmempercpu", "maxmempernode", "cpubind",
    "selecttypeparameters", "overtimelimit", "powerdownonidle", "resumetimeout", "suspendtimeout", "defmempergpu",
    "gracetime",
}  # fmt: skip


def _partitions(
    entries: list[ConfEntry], known: set[str], sets: dict[str, list[str]], cluster: _Cluster
) -> tuple[SlurmPartition, ...]:
    partitions: dict[str, SlurmPartition] = {}
    for entry, values in _lines(entries, "partitionname"):
        for name in _parsed(entry, "partitionname", expand_hosts, values["partitionname"]):
            if name in partitions:
                raise entry.error(f"partition {name} is defined twice")
            partitions[name] = _partition(name, entry, values, _Members(known, sets), cluster.report)
    return tuple(partitions.values())


@dataclass(frozen=True, slots=True)
class _Members:
    known: set[str]
    sets: dict[str, list[str]]

    def __call__(self, entry: ConfEntry, text: str) -> tuple[str, ...]:
        if text.upper() == "ALL":
            return tuple(sorted(self.known))
        names: dict[str, None] = {}
        for name in _parsed(entry, "nodes", expand_hosts, text):
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
        return _parsed(entry, key, parse, values[key]) if key in values else default

    both = get("priority", parse_count, 1)
    share = get("oversubscribe", str.upper, "") or get("shared", str.upper, "NO")
    if share.startswith(("YES", "FORCE")) and not share.endswith(":1"):
        report.add("not modelled", "OverSubscribe: jobs that share cores", _place(entry))
    state = get("state", str.upper, "UP")
    partition = SlurmPartition(
        name,
        members(entry, values.get("nodes", "")),
        default=get("default", _yes, False),
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
        preempt_mode=get("preemptmode", _preempt_mode, ""),
        memory_per_cpu_mb=get("defmempercpu", parse_memory_mb, 0.0),
        memory_per_node_mb=get("defmempernode", parse_memory_mb, 0.0),
        exclusive=share.startswith("EXCLUSIVE"),
        least_loaded=get("lln", _yes, False),
        schedules=state in ("UP", "DRAIN"),
        accepts=state in ("UP", "DOWN"),
        billing=get("tresbillingweights", parse_weights, {}),
    )
    for key in values.keys() - taken:
        if key in _PARTITION_NOT_MODELLED:
            report.add("not modelled", f"PartitionName {key}", _place(entry))
        elif key not in _PARTITION_NO_EFFECT:
            report.add("unknown", f"PartitionName {key}", _place(entry))
    return partition


def _yes(text: str) -> bool:
    if text.lower() not in ("yes", "no", "true", "false", "1", "0"):
        raise ValueError("must be YES or NO")
    return text.lower() in ("yes", "true", "1")


def _count(text: str) -> float:
    return math.inf if text.lower() in UNLIMITED else float(parse_count(text))


def _names(text: str) -> tuple[str, ...]:
    return () if text.upper() == "ALL" else tuple(filter(None, text.split(",")))


def _preempt_mode(text: str) -> Any:
    modes = {word.strip().lower() for word in text.split(",")} - {"gang", "within", "priority"}
    mode = modes.pop() if modes else "off"
    if modes or mode not in ("off", "cancel", "requeue", "suspend"):
        raise ValueError("must be OFF, CANCEL, REQUEUE or SUSPEND")
    return mode


def _scheduler(cluster: _Cluster) -> SchedulerParameters:
    parameters = SchedulerParameters(
        backfill=cluster.get("schedulertype", str.lower, "sched/backfill").endswith("backfill")
    )
    if "schedulerparameters" not in cluster.settings:
        return parameters
    text, entry = cluster.settings["schedulerparameters"]
    known = {field.name: field.type for field in fields(SchedulerParameters) if field.name != "backfill"}
    given: dict[str, Any] = {}
    for part in filter(None, (word.strip() for word in text.split(","))):
        name, _, value = part.partition("=")
        name = name.lower()
        if name == "bf_window":
            given[name] = _parsed(entry, name, float, value) * 60
        elif name == "bf_max_job_test" or known.get(name) == "int":
            given[name] = _parsed(entry, name, parse_count, value)
        elif known.get(name) == "float":
            given[name] = _parsed(entry, name, float, value)
        elif known.get(name) == "bool":
            given[name] = True
        elif name in ("max_script_size", "max_rpc_cnt", "max_switch_wait", "sched_min_interval", "bf_max_time",
                      "bf_yield_interval", "bf_yield_sleep", "max_sched_time", "no_env_cache"):  # fmt: skip
            cluster.report.add("no effect on scheduling", f"SchedulerParameters {name}", _place(entry))
        else:
            cluster.report.add("not modelled", f"SchedulerParameters {name}", _place(entry))
    return replace(parameters, **given)


def _priority(cluster: _Cluster) -> PriorityWeights:
    flags = {word.upper() for word in cluster.words("priorityflags")}
    handled = {"FAIR_TREE", "NO_FAIR_TREE", "NO_NORMAL_TRES", "SMALL_RELATIVE_TO_TIME", "ACCRUE_ALWAYS",
               "INCR_ONLY", "MAX_TRES", ""}  # fmt: skip
    for flag in sorted(flags - handled):
        cluster.report.add("not modelled", f"PriorityFlags {flag}", _place(cluster.settings["priorityflags"][1]))
    kind = cluster.get("prioritytype", str.lower, "priority/multifactor")
    half_life = cluster.get("prioritydecayhalflife", parse_limit_s, 7 * 86_400.0)
    return PriorityWeights(
        multifactor=kind.endswith("multifactor"),
        age=cluster.get("priorityweightage", float, 0.0),
        fair_share=cluster.get("priorityweightfairshare", float, 0.0),
        job_size=cluster.get("priorityweightjobsize", float, 0.0),
        partition=cluster.get("priorityweightpartition", float, 0.0),
        qos=cluster.get("priorityweightqos", float, 0.0),
        tres=cluster.get("priorityweighttres", parse_weights, {}),
        max_age_s=cluster.get("prioritymaxage", parse_limit_s, 7 * 86_400.0),
        half_life_s=half_life or math.inf,
        calc_period_s=cluster.get("prioritycalcperiod", parse_limit_s, 300.0),
        dampening=cluster.get("fairsharedampeningfactor", float, 1.0),
        favor_small=cluster.get("priorityfavorsmall", _yes, False),
        fair_tree="NO_FAIR_TREE" not in flags,
        normal_tres="NO_NORMAL_TRES" not in flags,
        size_relative_to_time="SMALL_RELATIVE_TO_TIME" in flags,
        accrue_always="ACCRUE_ALWAYS" in flags,
        increase_only="INCR_ONLY" in flags,
        max_tres="MAX_TRES" in flags,
    )


def _preemption(cluster: _Cluster) -> Preemption:
    kind = cluster.get("preempttype", str.lower, "preempt/none").removeprefix("preempt/")
    known: dict[str, Any] = {"none": "none", "partition_prio": "partition", "qos": "qos"}
    if kind not in known:
        raise cluster.settings["preempttype"][1].error(f"PreemptType={kind} is not none, partition_prio or qos")
    return Preemption(
        known[kind],
        cluster.get("preemptmode", _preempt_mode, "off"),
        requeue=cluster.get("jobrequeue", parse_count, 1) != 0,
        youngest_first="preempt_youngest_first" in cluster.get("schedulerparameters", str.lower, ""),
    )


def _selection(cluster: _Cluster) -> dict[str, Any]:
    kind = cluster.get("selecttype", str.lower, "select/cons_tres")
    flags = {word.upper() for word in cluster.words("selecttypeparameters")}
    if any(flag.startswith(("CR_SOCKET", "CR_LLN", "CR_PACK", "CR_ONE_TASK")) for flag in flags):
        place = _place(cluster.settings["selecttypeparameters"][1])
        for flag in sorted(flags):
            if flag.startswith(("CR_SOCKET", "CR_LLN", "CR_PACK", "CR_ONE_TASK")):
                cluster.report.add("not modelled", f"SelectTypeParameters {flag}", place)
    return {
        "whole_nodes": kind.endswith("linear"),
        "unit": "cpu" if any(flag.startswith("CR_CPU") for flag in flags) else "core",
        "memory_counts": any(flag.endswith("MEMORY") for flag in flags),
        "memory_per_cpu_mb": cluster.get("defmempercpu", parse_memory_mb, 0.0),
        "memory_per_node_mb": cluster.get("defmempernode", parse_memory_mb, 0.0),
        "over_time_limit_s": cluster.get("overtimelimit", parse_limit_s, 0.0),
    }


def _enforcement(cluster: _Cluster) -> dict[str, Any]:
    enforced = {word.lower() for word in cluster.words("accountingstorageenforce")}
    everything = "all" in enforced or "1" in enforced
    limits = everything or bool(enforced & {"limits", "safe"})
    qos = everything or "qos" in enforced
    if "safe" in enforced:
        cluster.report.add("not modelled", "AccountingStorageEnforce safe")
    return {
        "enforce_limits": limits,
        "enforce_qos": qos,
        "enforce_associations": limits or qos or "associations" in enforced,
        "enforce_partition_limits": cluster.get("enforcepartlimits", str.upper, "NO") not in ("NO", "0"),
    }


def _check_gres(path: Path, groups: tuple[NodeGroup, ...], report: SiteReport) -> None:
    """gres.conf only describes devices; nodes that it gives another count than slurm.conf are reported."""
    if not path.is_file():
        return
    counts = {(name, gres.name): gres.count for group in groups for name in group.names for gres in group.gres}
    for entry in read_entries(path):
        values = entry.values
        if "name" not in values or "nodename" not in values or "count" not in values:
            continue
        for node in _parsed(entry, "nodename", expand_hosts, values["nodename"]):
            count = _parsed(entry, "count", lambda text: parse_gres(f"x:{text}")[0].count, values["count"])
            if "type" not in values and counts.get((node, values["name"].lower()), 0) != count:
                report.add(
                    "assumed", "nodes for which gres.conf and slurm.conf differ; using slurm.conf", _place(entry)
                )


def _switches(path: Path, known: set[str], cluster: _Cluster) -> tuple[SwitchGroup, ...]:
    if not cluster.get("topologyplugin", str.lower, "").endswith("tree"):
        return ()
    if not path.is_file():
        raise cluster.settings["topologyplugin"][1].error(f"topology/tree needs {path.name} beside slurm.conf")
    switches, covered = [], set()
    for entry in read_entries(path):
        values = entry.values
        if "switchname" not in values:
            raise entry.error("a line of topology.conf begins with SwitchName=")
        nodes = _parsed(entry, "nodes", expand_hosts, values.get("nodes", ""))
        missing = [name for name in nodes if name not in known]
        if missing:
            cluster.report.add("assumed", "nodes of topology.conf that slurm.conf does not define are left out",
                               _place(entry), len(missing))  # fmt: skip
        below = tuple(_parsed(entry, "switches", expand_hosts, values.get("switches", "")))
        present = tuple(name for name in nodes if name in known)
        covered |= set(present)
        switches.append(SwitchGroup(values["switchname"], present, below))
    if not covered:
        cluster.report.add("assumed", "topology.conf covers no node; the topology is left out", path.name)
        return ()
    if known - covered:
        cluster.report.add("assumed", "nodes without a switch in topology.conf", path.name, len(known - covered))
    return tuple(switches)


_READ = {
    "clustername", "schedulertype", "schedulerparameters", "prioritytype", "priorityflags", "priorityweightage",
    "priorityweightfairshare", "priorityweightjobsize", "priorityweightpartition", "priorityweightqos",
    "priorityweighttres", "prioritymaxage", "prioritydecayhalflife", "prioritycalcperiod", "priorityfavorsmall",
    "fairsharedampeningfactor", "preempttype", "preemptmode", "jobrequeue", "selecttype", "selecttypeparameters",
    "defmempercpu", "defmempernode", "overtimelimit", "accountingstorageenforce", "enforcepartlimits",
    "topologyplugin",
}  # fmt: skip


def _report_settings(cluster: _Cluster) -> None:
    for key, (value, entry) in cluster.settings.items():
        if key in _READ:
            continue
        if key in NOT_MODELLED:
            if value.lower() not in ("", "none", "0", "no"):
                cluster.report.add("not modelled", key, _place(entry))
        elif key.startswith(_NO_EFFECT):
            cluster.report.add("no effect on scheduling", key, _place(entry))
        else:
            cluster.report.add("unknown", key, _place(entry))
