"""Settings of the whole cluster in slurm.conf: entries -> values by key, and a report of those that are not used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from clustertwin.workload.slurm.site.conf_lines import ConfEntry
from clustertwin.workload.slurm.site.slurm_site import SiteReport

Value = TypeVar("Value")


#: Keys of the whole cluster that change when or where jobs start, and that the simulation leaves out.
NOT_MODELLED = {
    "licenses", "jobsubmitplugins", "preemptexempttime", "maxjobcount", "maxarraysize", "suspendprogram",
    "resumeprogram", "suspendtime", "powerparameters", "burstbuffertype", "federationparameters", "mcsplugin",
    "priorityusageresetperiod", "prioritysitefactorplugin", "jobdefaults", "dependencyparameters",
    "resvoverrun", "healthcheckprogram", "prolog", "epilog", "prologslurmctld", "epilogslurmctld", "completewait",
    "maxmempernode", "topologyparam", "nodefeaturesplugins", "corespecplugin",
    "schedulertimeslice",
}  # fmt: skip


#: Beginnings of keys that do not change when or where jobs start.
NO_EFFECT = (
    "accounting", "acctgather", "allowspecresourcesusage", "auth", "backup", "batchstarttimeout", "cli", "cloud",
    "clustername", "comm", "control", "core", "cpufreq", "cred", "crypto", "debugflags", "defaultstorage",
    "disablerootjobs", "eiotimeout", "enforce", "ext_sensors", "firstjobid", "frontend", "getenvtimeout", "grestypes",
    "groupupdate", "gpufreqdef", "healthcheck", "inactivelimit", "interactive", "job", "keepalive", "kill", "launch",
    "logtimeformat", "mail", "maxdbdmsgs", "maxstepcount", "maxtaskspernode", "messagetimeout", "minjobage", "mpi",
    "overtimelimit", "plugin", "plugstack", "power", "prepplugins", "privatedata", "proctrack", "prologflags",
    "prologepilogtimeout", "propagate", "rebootprogram", "reconfigflags", "requeueexit", "resumetimeout", "resumerate",
    "resumefail", "returntoservice", "route", "sallocdefaultcommand", "sbcast", "slurm", "srun", "statesave",
    "suspend", "switch", "task", "tcptimeout", "tmpfs", "topology", "trackwckey", "treewidth",
    "unkillable", "usepam", "vsizefactor", "waittime", "x11", "checkpoint", "cachegroups", "fastschedule",
    "allow", "validate", "bcast", "data", "mcs",
)  # fmt: skip


_LINES = {"nodename", "partitionname", "downnodes", "nodeset", "frontendname", "switchname", "name"}


_READ = {
    "clustername", "schedulertype", "schedulerparameters", "prioritytype", "priorityflags", "priorityweightage",
    "priorityweightfairshare", "priorityweightjobsize", "priorityweightpartition", "priorityweightqos",
    "priorityweighttres", "prioritymaxage", "prioritydecayhalflife", "prioritycalcperiod", "priorityfavorsmall",
    "fairsharedampeningfactor", "preempttype", "preemptmode", "jobrequeue", "selecttype", "selecttypeparameters",
    "defmempercpu", "defmempernode", "maxmempercpu", "overtimelimit", "accountingstorageenforce", "enforcepartlimits",
    "topologyplugin",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ConfSettings:
    """Entries of slurm.conf by kind, with the report that they fill."""

    settings: dict[str, tuple[str, ConfEntry]]
    report: SiteReport

    def get(self, key: str, parse: Callable[[str], Value], default: Value) -> Value:
        if key not in self.settings:
            return default
        text, entry = self.settings[key]
        return parsed(entry, key, parse, text)

    def words(self, key: str) -> list[str]:
        return [word.strip() for word in self.settings[key][0].split(",")] if key in self.settings else []


def parsed(entry: ConfEntry, key: str, parse: Callable[[str], Value], text: str) -> Value:
    try:
        return parse(text)
    except (ValueError, OverflowError) as error:
        raise entry.error(f"{key}={text[:60]}: {error}") from error


def file_and_line(entry: ConfEntry) -> str:
    return f"{Path(entry.file).name}:{entry.line}"


def cluster_settings(entries: Iterable[ConfEntry], report: SiteReport) -> dict[str, tuple[str, ConfEntry]]:
    settings: dict[str, tuple[str, ConfEntry]] = {}
    for entry in entries:
        if entry.kind in _LINES:
            for key in {key for key, _ in entry.pairs if [name for name, _ in entry.pairs].count(key) > 1}:
                report.add("assumed", f"{key} stands twice on a line; the last value counts", file_and_line(entry))
            continue
        for key, value in entry.pairs:
            if key in settings:
                report.add("assumed", f"{key} is set more than once; the last value counts", file_and_line(entry))
            settings[key] = (value, entry)
    return settings


def lines_of(entries: Iterable[ConfEntry], kind: str) -> Iterable[tuple[ConfEntry, dict[str, str]]]:
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


def report_settings(cluster: ConfSettings) -> None:
    for key, (value, entry) in cluster.settings.items():
        if key in _READ:
            continue
        if key in NOT_MODELLED:
            if value.lower() not in ("", "none", "0", "no"):
                cluster.report.add("not modelled", key, file_and_line(entry))
        elif key.startswith(NO_EFFECT):
            cluster.report.add("no effect on scheduling", key, file_and_line(entry))
        else:
            cluster.report.add("unknown", key, file_and_line(entry))


def yes_or_no(text: str) -> bool:
    if text.lower() not in ("yes", "no", "true", "false", "1", "0"):
        raise ValueError("must be YES or NO")
    return text.lower() in ("yes", "true", "1")


def preempt_mode_of(text: str) -> Any:
    modes = {word.strip().lower() for word in text.split(",")} - {"gang", "within", "priority"}
    mode = modes.pop() if modes else "off"
    if modes or mode not in ("off", "cancel", "requeue", "suspend"):
        raise ValueError("must be OFF, CANCEL, REQUEUE or SUSPEND")
    return mode
