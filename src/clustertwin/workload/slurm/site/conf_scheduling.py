"""Settings of slurm.conf about scheduling -> scheduler parameters, priority weights, preemption, selection, limits."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

from clustertwin.workload.slurm.site.conf_settings import (
    ConfSettings,
    file_and_line,
    parsed,
    preempt_mode_of,
    yes_or_no,
)
from clustertwin.workload.slurm.site.quantities import (
    parse_limit_s,
    parse_memory_mb,
    parse_number,
    parse_size,
    parse_weights,
)
from clustertwin.workload.slurm.site.slurm_site import Preemption, PriorityWeights, SchedulerParameters


def scheduler_parameters(cluster: ConfSettings) -> SchedulerParameters:
    parameters = SchedulerParameters(
        backfill=cluster.get("schedulertype", str.lower, "sched/backfill").endswith("backfill")
    )
    if "schedulerparameters" not in cluster.settings:
        return parameters
    text, entry = cluster.settings["schedulerparameters"]
    known = {field.name: field.type for field in fields(SchedulerParameters) if field.name != "backfill"}
    values: dict[str, Any] = {}
    for part in filter(None, (word.strip() for word in text.split(","))):
        name, _, value = part.partition("=")
        name = name.lower()
        if name == "bf_interval" and value.strip() == "-1":  # Slurm's way to turn backfilling off
            values["backfill"] = False
        elif name == "bf_window":
            values[name] = parsed(entry, name, parse_number, value) * 60
        elif name == "bf_max_job_test" or known.get(name) == "int":
            values[name] = parsed(entry, name, parse_size, value)
        elif known.get(name) == "float":
            values[name] = parsed(entry, name, parse_number, value)
        elif known.get(name) == "bool":
            values[name] = True
        elif name in ("max_script_size", "max_rpc_cnt", "max_switch_wait", "sched_min_interval", "bf_max_time",
                      "bf_continue", "bf_yield_interval", "bf_yield_sleep", "max_sched_time",
                      "no_env_cache"):  # fmt: skip
            cluster.report.add("no effect on scheduling", f"SchedulerParameters {name}", file_and_line(entry))
        else:
            cluster.report.add("not modelled", f"SchedulerParameters {name}", file_and_line(entry))
    return replace(parameters, **values)


def priority_weights(cluster: ConfSettings) -> PriorityWeights:
    flags = {word.upper() for word in cluster.words("priorityflags")}
    handled = {"FAIR_TREE", "NO_FAIR_TREE", "NO_NORMAL_TRES", "SMALL_RELATIVE_TO_TIME", "ACCRUE_ALWAYS",
               "INCR_ONLY", "MAX_TRES", ""}  # fmt: skip
    for flag in sorted(flags - handled):
        cluster.report.add("not modelled", f"PriorityFlags {flag}", file_and_line(cluster.settings["priorityflags"][1]))
    kind = cluster.get("prioritytype", str.lower, "priority/multifactor")
    half_life = cluster.get("prioritydecayhalflife", parse_limit_s, 7 * 86_400.0)
    return PriorityWeights(
        multifactor=kind.endswith("multifactor"),
        age=cluster.get("priorityweightage", parse_number, 0.0),
        fair_share=cluster.get("priorityweightfairshare", parse_number, 0.0),
        job_size=cluster.get("priorityweightjobsize", parse_number, 0.0),
        partition=cluster.get("priorityweightpartition", parse_number, 0.0),
        qos=cluster.get("priorityweightqos", parse_number, 0.0),
        tres=cluster.get("priorityweighttres", parse_weights, {}),
        max_age_s=cluster.get("prioritymaxage", parse_limit_s, 7 * 86_400.0),
        half_life_s=half_life or math.inf,
        calc_period_s=cluster.get("prioritycalcperiod", parse_limit_s, 300.0),
        dampening=cluster.get("fairsharedampeningfactor", float, 1.0),
        favor_small=cluster.get("priorityfavorsmall", yes_or_no, False),
        fair_tree="NO_FAIR_TREE" not in flags,
        normal_tres="NO_NORMAL_TRES" not in flags,
        size_relative_to_time="SMALL_RELATIVE_TO_TIME" in flags,
        accrue_always="ACCRUE_ALWAYS" in flags,
        increase_only="INCR_ONLY" in flags,
        max_tres="MAX_TRES" in flags,
    )


def preemption_of_site(cluster: ConfSettings) -> Preemption:
    kind = cluster.get("preempttype", str.lower, "preempt/none").removeprefix("preempt/")
    known: dict[str, Any] = {"none": "none", "partition_prio": "partition", "qos": "qos"}
    if kind not in known:
        raise cluster.settings["preempttype"][1].error(f"PreemptType={kind} is not none, partition_prio or qos")
    return Preemption(
        known[kind],
        cluster.get("preemptmode", preempt_mode_of, "off"),
        requeue=cluster.get("jobrequeue", parse_size, 1) != 0,
        youngest_first="preempt_youngest_first" in cluster.get("schedulerparameters", str.lower, ""),
    )


def selection_settings(cluster: ConfSettings) -> dict[str, Any]:
    kind = cluster.get("selecttype", str.lower, "select/cons_tres")
    flags = {word.upper() for word in cluster.words("selecttypeparameters")}
    for flag in sorted(flags):
        if flag.startswith(("CR_SOCKET", "CR_LLN", "CR_PACK", "CR_ONE_TASK")):
            place = file_and_line(cluster.settings["selecttypeparameters"][1])
            cluster.report.add("not modelled", f"SelectTypeParameters {flag}", place)
    return {
        "whole_nodes": kind.endswith("linear"),
        "unit": "cpu" if any(flag.startswith("CR_CPU") for flag in flags) else "core",
        "memory_counts": any(flag.endswith("MEMORY") for flag in flags),
        "memory_per_cpu_mb": cluster.get("defmempercpu", parse_memory_mb, 0.0),
        "memory_per_node_mb": cluster.get("defmempernode", parse_memory_mb, 0.0),
        "max_memory_per_cpu_mb": cluster.get("maxmempercpu", parse_memory_mb, 0.0),
        "over_time_limit_s": cluster.get("overtimelimit", parse_limit_s, 0.0),
    }


def enforcement_settings(cluster: ConfSettings) -> dict[str, Any]:
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
        "enforce_every_partition": cluster.get("enforcepartlimits", str.upper, "NO") == "ALL",  # YES is ANY
    }
