"""Command lines of sbatch -> options -> what a job asks for, and the tasks of an array."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from clustertwin.workload.slurm.joblog.job_table import SlurmJob
from clustertwin.workload.slurm.site.quantities import (
    Gres,
    parse_count,
    parse_gres,
    parse_limit_s,
    parse_memory_mb,
    parse_size,
)
from clustertwin.workload.slurm.site.slurm_site import SiteReport

#: Jobs of a log with arrays; Slurm's own limit for one array is 4 million tasks.
MOST_TASKS = 4_000_000
#: One letter of sbatch -> the long option.
SHORT_OPTIONS = {
    "N": "nodes", "n": "ntasks", "t": "time", "q": "qos", "p": "partition", "A": "account", "c": "cpus-per-task",
    "C": "constraint", "J": "job-name", "d": "dependency", "a": "array", "b": "begin", "G": "gpus", "w": "nodelist",
    "x": "exclude", "H": "hold", "o": "output", "e": "error", "D": "chdir", "L": "licenses", "O": "overcommit",
    "s": "oversubscribe", "k": "no-kill", "Q": "quiet", "v": "verbose", "V": "version", "W": "wait", "h": "help",
    "I": "immediate", "K": "kill-on-bad-exit", "X": "disable-status", "Z": "no-allocate", "E": "preserve-env",
    "l": "label", "u": "unbuffered",
}  # fmt: skip
#: Options without a value, and those whose value must follow "=": the next word is not theirs.
FLAGS = {
    "exclusive", "hold", "requeue", "no-requeue", "parsable", "wait", "overcommit", "contiguous", "spread-job", "nice",
    "no-kill", "oversubscribe", "quiet", "verbose", "version", "help", "usage", "reboot", "test-only", "ignore-pbs",
    "use-min-nodes", "get-user-env", "propagate", "immediate", "kill-on-bad-exit", "disable-status", "no-allocate",
    "preserve-env", "label", "unbuffered", "pty", "x11", "resv-ports", "overlap", "exact", "whole", "multi-prog",
    "interactive", "bell", "no-bell", "no-shell", "stepmgr",
}  # fmt: skip
NOT_MODELLED = {
    "licenses", "gpus-per-socket", "mem-per-gpu", "contiguous",
    "spread-job", "overcommit", "oversubscribe", "switches", "core-spec", "thread-spec", "deadline", "time-min",
    "cluster-constraint", "sockets-per-node", "cores-per-socket", "threads-per-core", "ntasks-per-core",
    "ntasks-per-socket", "hint", "prefer", "bb", "use-min-nodes",
}  # fmt: skip


def sbatch_options(line: str, part: int = 0) -> dict[str, str]:
    """A command line of sbatch -> long options; the script and its arguments end it.

    A colon separates the parts of a heterogeneous job, whose options then contain `het-group`.
    """
    words = shlex.split(line)
    if words and words[0].endswith(("sbatch", "srun", "salloc")):
        words = words[1:]
    options: dict[str, str] = {}
    at, several = 0, False
    while at < len(words) and (words[at].startswith("-") or words[at] == ":"):
        if words[at] == ":":
            several = True
            if not part:
                break
            at, part, options = at + 1, part - 1, {}
            continue
        name, equals, value = words[at].lstrip("-").partition("=")
        dashes = len(words[at]) - len(words[at].lstrip("-"))
        at += 1
        if not name:
            raise ValueError(f"{words[at - 1]!r} is not an option")
        if dashes == 1 and name not in ("sim-walltime",):
            name, value, equals = name[0], (name[1:] + equals + value), "=" if name[1:] else ""
            name = SHORT_OPTIONS.get(name, name)
        if not equals and name not in FLAGS:
            if at >= len(words):
                raise ValueError(f"option {name} has no value")
            value, at = words[at], at + 1
        options[name] = value
    return options | ({"het-group": ""} if several else {})


def with_options(job: SlurmJob, options: dict[str, str], report: SiteReport, place: str) -> SlurmJob:
    """A job with what its sbatch options say; options that the model lacks are reported."""
    changes: dict[str, Any] = {}
    for name, value in options.items():
        if name in _SIMPLE:
            field, parse = _SIMPLE[name]
            changes[field] = parse(value)
        elif name == "nodes":
            low, _, high = value.partition("-")
            changes["nodes_min"], changes["nodes_max"] = parse_count(low), parse_count(high or low)
        elif name == "exclusive":
            if value:
                report.add("not modelled", f"--exclusive={value}", place)
            else:
                changes["exclusive"] = True
        elif name == "gres":
            changes["gres"] = parse_gres(value)
        elif name == "gpus-per-node":
            changes["gres"] = parse_gres(f"gpu:{value}")
        elif name == "begin":
            changes["begin_s"] = _begin_s(value, job.submit_s)
        elif name in ("hold",):
            changes["begin_s"] = math.inf
        elif name in ("requeue", "no-requeue"):
            changes["requeue"] = name == "requeue"
        elif name == "het-group":
            report.add("not modelled", "heterogeneous jobs: only their first part is read", place)
        elif name in NOT_MODELLED:
            report.add("not modelled", f"--{name}", place)
    if "nodes" in options and 0 < changes.get("tasks", 0) < changes["nodes_min"]:  # as sbatch lowers it
        changes["nodes_min"] = changes["nodes_max"] = changes["tasks"]
    gpus, exact = _gpus_on_each_node(options)
    if gpus and "gres" not in changes:
        changes["gres"] = gpus
    if gpus and not exact:
        report.add(
            "assumed", "GPUs of a job whose nodes are not known, or do not share them evenly: one on each", place
        )
    return replace(job, **changes)


def _gpus_on_each_node(options: dict[str, str]) -> tuple[tuple[Gres, ...], bool]:
    """GPUs on each node of a job that asks for them by job or by task, and whether these are as many as it asks for."""
    low, _, high = options.get("nodes", "").partition("-")
    on_node, tasks = (parse_size(options.get(name) or "0") for name in ("ntasks-per-node", "ntasks"))
    nodes = parse_size(low) if low and high in ("", low) else int(not low and tasks in (0, 1))
    name = "gpus" if options.get("gpus") else "gpus-per-task"
    kinds = [f"gpu:{kind}" for kind in options.get(name, "").split(",") if kind]
    asked = parse_gres(",".join(kinds)) if kinds else ()
    if name == "gpus-per-task" and on_node:
        return tuple(replace(gres, count=gres.count * on_node) for gres in asked), True
    times = 1 if name == "gpus" else tasks or on_node * nodes or nodes
    exact = nodes > 0 and times > 0 and all(gres.count * times % nodes == 0 for gres in asked)
    return tuple(replace(gres, count=gres.count * times // nodes if exact else 1) for gres in asked), exact


_SIMPLE: dict[str, tuple[str, Callable[[str], Any]]] = {
    "ntasks": ("tasks", parse_count),
    "time": ("limit_s", lambda text: parse_limit_s(text) or math.inf),  # 0 asks for no limit
    "qos": ("qos", str),
    "account": ("account", str),
    "partition": ("partitions", lambda text: tuple(text.split(","))),
    "cpus-per-task": ("cpus_per_task", parse_count),
    "ntasks-per-node": ("tasks_per_node", parse_count),
    "constraint": ("constraint", str),
    "mem": ("memory_per_node_mb", parse_memory_mb),
    "mem-per-cpu": ("memory_per_cpu_mb", parse_memory_mb),
    "nice": ("nice", lambda text: parse_count(text or "100")),
    "dependency": ("dependency", str),
    "reservation": ("reservation", str),
    "nodelist": ("nodelist", str),
    "exclude": ("exclude", str),
}


def _begin_s(text: str, submit_s: float) -> float:
    """`now+60`, `now+2hours` or seconds of the log."""
    match = re.fullmatch(r"(now)?\+?(\d+(?:\.\d+)?)(seconds?|minutes?|hours?|days?)?", text)
    if match is None:
        raise ValueError(f"--begin={text}: write now+SECONDS")
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
    seconds = float(match[2]) * units[(match[3] or "s")[0]]
    return submit_s + seconds if match[1] else seconds


def array_tasks(job: SlurmJob, options: dict[str, str], before: int) -> Iterator[SlurmJob]:
    if "array" not in options:
        yield job
        return
    ranges, _, limit = options["array"].partition("%")
    count = 0
    for part in ranges.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", part)
        if match is None:
            raise ValueError(f"--array={options['array']}: write 0-9, 1,3,5 or 0-9%2")
        count += len(range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1)))
    if before + count > MOST_TASKS:  # of a few bytes each: a small log could fill the memory
        raise ValueError(
            f"--array={options['array'][:40]}: {before + count:,} jobs so far; the limit is {MOST_TASKS:,}"
        )
    for task in range(count):
        yield replace(job, id=before + 1 + task, array=job.id, array_limit=int(limit or 0))
