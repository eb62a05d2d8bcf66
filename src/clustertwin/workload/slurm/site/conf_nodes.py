"""Lines of slurm.conf, gres.conf and topology.conf about nodes -> node groups, node sets and switches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from clustertwin.workload.slurm.site.conf_lines import ConfEntry, read_entries
from clustertwin.workload.slurm.site.conf_settings import ConfSettings, file_and_line, lines_of, parsed
from clustertwin.workload.slurm.site.quantities import expand_hosts, parse_gres, parse_memory_mb, parse_size
from clustertwin.workload.slurm.site.slurm_site import NodeGroup, SiteReport, SwitchGroup

_DOWN = ("down", "drain", "fail", "future", "cloud", "maint", "power_down")
_UP = ("unknown", "idle", "up", "alloc", "mixed", "resume", "undrain", "planned")


_NODE_KEYS = {
    "nodename", "cpus", "procs", "boards", "sockets", "socketsperboard", "corespersocket", "threadspercore",
    "realmemory", "memspeclimit", "corespeccount", "gres", "feature", "features", "weight", "state",
}  # fmt: skip


_NODE_NO_EFFECT = {"nodeaddr", "nodehostname", "port", "tmpdisk", "reason", "cpuspeclist", "bcastaddr"}


def node_groups(entries: list[ConfEntry], report: SiteReport) -> tuple[NodeGroup, ...]:
    groups: list[NodeGroup] = []
    seen: dict[str, str] = {}
    for entry, values in lines_of(entries, "nodename"):
        group = _group(entry, values, report)
        for name in group.names:
            if name in seen:
                raise entry.error(f"node {name} is already defined at {seen[name]}")
            seen[name] = file_and_line(entry)
        for key in values.keys() - _NODE_KEYS - _NODE_NO_EFFECT:
            report.add("unknown", f"NodeName {key}", file_and_line(entry))
        groups.append(group)
    down: set[str] = set()
    for entry, values in lines_of(entries, "downnodes"):
        names = set(parsed(entry, "downnodes", expand_hosts, values["downnodes"]))
        if names - seen.keys():
            raise entry.error(f"DownNodes names {min(names - seen.keys())}, which no NodeName line defines")
        if values.get("state", "down").lower().startswith(_DOWN):
            down |= names
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
        return parsed(entry, key, parse_size, values[key]) if key in values else default

    boards = number("boards", 1)
    sockets = number("socketsperboard", 0) * boards or number("sockets", 0)
    threads = max(number("threadspercore", 1), 1)
    cores_per_socket = number("corespersocket", 1)
    cpus = number("cpus", number("procs", 0))
    on_socket = max(cores_per_socket, 1) * threads
    if not sockets and "corespersocket" in values and cpus % on_socket == 0:
        sockets = cpus // on_socket  # as Slurm infers it
    if sockets or "corespersocket" in values:
        cores = max(sockets, 1) * cores_per_socket
        if cpus and cpus == cores and threads > 1:
            threads = 1
        elif cpus and cpus != cores * threads:
            report.add(
                "assumed",
                f"CPUs={cpus} differs from sockets × cores × threads; using {cores * threads}",
                file_and_line(entry),
            )
    else:
        if cpus < 1 and {"cpus", "procs"} & values.keys():
            raise entry.error("CPUs=0: a node needs a CPU")
        cores = max(cpus, 1) // threads or 1
    memory = parsed(entry, "realmemory", parse_memory_mb, values.get("realmemory", "1"))
    reserved = number("memspeclimit", 0)
    state = values.get("state", "unknown").lower()
    if not state.startswith(_DOWN + _UP):
        report.add("unknown", f"NodeName State={values['state']}; the node is taken as up", file_and_line(entry))
    if cores - number("corespeccount", 0) < 1:
        raise entry.error(f"{cores} cores, of which CoreSpecCount takes {number('corespeccount', 0)}: none is left")
    if memory < reserved:
        raise entry.error(f"MemSpecLimit={reserved} is more than RealMemory={memory:g}")
    return NodeGroup(
        tuple(parsed(entry, "nodename", expand_hosts, values["nodename"])),
        cores - number("corespeccount", 0),
        threads,
        memory - reserved,
        parsed(entry, "gres", parse_gres, values.get("gres", "")),
        tuple(filter(None, values.get("features", values.get("feature", "")).split(","))),
        number("weight", 1),
        not state.startswith(_DOWN),
    )


def node_sets(entries: list[ConfEntry], groups: tuple[NodeGroup, ...]) -> dict[str, list[str]]:
    sets: dict[str, list[str]] = {}
    for entry, values in lines_of(entries, "nodeset"):
        names = parsed(entry, "nodes", expand_hosts, values.get("nodes", ""))
        feature = values.get("feature")
        names += [name for group in groups if feature in group.features for name in group.names]
        sets[values["nodeset"]] = names
    return sets


def check_gres(path: Path, groups: tuple[NodeGroup, ...], report: SiteReport) -> None:
    """gres.conf only describes devices; nodes that it gives another count than slurm.conf are reported."""
    if not path.is_file():
        return
    counts = {(name, gres.name): gres.count for group in groups for name in group.names for gres in group.gres}
    for entry in read_entries(path):
        values = entry.values
        if "name" not in values or "nodename" not in values or "count" not in values:
            continue
        for node in parsed(entry, "nodename", expand_hosts, values["nodename"]):
            count = parsed(entry, "count", lambda text: parse_gres(f"x:{text}")[0].count, values["count"])
            if "type" not in values and counts.get((node, values["name"].lower()), 0) != count:
                report.add(
                    "assumed", "nodes for which gres.conf and slurm.conf differ; using slurm.conf", file_and_line(entry)
                )


def read_switches(path: Path, known: set[str], cluster: ConfSettings) -> tuple[SwitchGroup, ...]:
    if not cluster.get("topologyplugin", str.lower, "").endswith("tree"):
        return ()
    if not path.is_file():
        raise cluster.settings["topologyplugin"][1].error(f"topology/tree needs {path.name} beside slurm.conf")
    switches, covered = [], set()
    for entry in read_entries(path):
        values = entry.values
        if "switchname" not in values:
            raise entry.error("a line of topology.conf begins with SwitchName=")
        nodes = parsed(entry, "nodes", expand_hosts, values.get("nodes", ""))
        missing = [name for name in nodes if name not in known]
        if missing:
            cluster.report.add("assumed", "nodes of topology.conf that slurm.conf does not define are left out",
                               file_and_line(entry), len(missing))  # fmt: skip
        below = tuple(parsed(entry, "switches", expand_hosts, values.get("switches", "")))
        present = tuple(name for name in nodes if name in known)
        covered |= set(present)
        switches.append(SwitchGroup(values["switchname"], present, below))
    if not covered:
        cluster.report.add("assumed", "topology.conf covers no node; the topology is left out", path.name)
        return ()
    if known - covered:
        cluster.report.add("assumed", "nodes without a switch in topology.conf", path.name, len(known - covered))
    return tuple(switches)
