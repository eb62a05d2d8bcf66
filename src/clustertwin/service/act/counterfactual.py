"""What each choice would do to the live queue: a job and a finding -> outcomes, as plain values."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

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
    size = np.array([line.split("/") for line in run(("sinfo", "--noheader", "--format=%C")).split()], dtype=int)
    procs = int(size[:, 0].sum() + size[:, 1].sum())
    scenario = Scenario("now", "fcfs", "easy", procs)
    health = JobHealth(job, finding.hang, finding.sure)
    log = read(past) if past else None
    found = predict_outcomes(queue, health, scenario, log, np.random.default_rng(seed), settings)
    return tuple(asdict(outcome) for outcome in found)
