"""What each choice would do to the live queue: a job and a finding -> outcomes, as plain values."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from clustertwin.core.errors import SourceError
from clustertwin.core.job_health import JobHealth
from clustertwin.service.act.slurm_commands import RunCommand, run_command
from clustertwin.telemetry.diagnosis.evidence import JobFinding
from clustertwin.workload.formats import read
from clustertwin.workload.simulator.forecast.action_outcomes import ActionSettings, predict_outcomes
from clustertwin.workload.simulator.forecast.squeue import COMMAND, parse_squeue
from clustertwin.workload.simulator.forecast.start_times import Scenario


def outcomes_of(
    job: str,
    finding: JobFinding,
    past: Path | None = None,
    run: RunCommand = run_command,
    settings: ActionSettings = ActionSettings(),
    seed: int = 0,
) -> tuple[dict[str, Any], ...]:
    """The outcomes for a job that runs now, from squeue and sinfo."""
    queue = parse_squeue(run(COMMAND))
    procs = parse_cpus(run(("sinfo", "--noheader", "--format=%C")))
    if settings.known.unfit_nodes:
        nodes = run(("sinfo", "--noheader", "--Node", "--format=%N|%C"))
        procs -= idle_cpus(nodes, settings.known.unfit_nodes)
    scenario = Scenario("now", "fcfs", "easy", procs)
    health = JobHealth(job, finding.hang, finding.sure)
    log = read(past) if past else None
    found = predict_outcomes(queue, health, scenario, log, np.random.default_rng(seed), settings)
    return tuple(asdict(outcome) for outcome in found)


def parse_cpus(text: str) -> int:
    """CPUs that are allocated or idle, from lines of allocated/idle/other/total.

    >>> parse_cpus("8/6/2/16\\n")
    14
    """
    rows = [line.split("/") for line in text.split()]
    if not rows or any(len(row) != 4 or not all(re.fullmatch(r"[0-9]{1,9}", word) for word in row) for row in rows):
        raise SourceError("Slurm's answer about its CPUs cannot be read")
    return sum(int(row[0]) + int(row[1]) for row in rows)


def idle_cpus(text: str, nodes: frozenset[str]) -> int:
    """The idle CPUs of these nodes, from lines of NODE|allocated/idle/other/total. A node has a line per partition.

    >>> idle_cpus("n1|2/6/0/8\\nn1|2/6/0/8\\nn2|0/8/0/8\\n", frozenset({"n1"}))
    6
    """
    idle = {}
    for line in text.split():
        node, _, counts = line.partition("|")
        match = re.fullmatch(r"[0-9]{1,9}/([0-9]{1,9})/[0-9]{1,9}/[0-9]{1,9}", counts)
        if match is None:
            raise SourceError("Slurm's answer about the CPUs of its nodes cannot be read")
        idle[node] = int(match[1])
    return sum(count for node, count in idle.items() if node in nodes)
