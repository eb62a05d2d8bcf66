"""Wire a what-if question: options of the command -> a live queue, futures from a generator, answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.workload import generators
from clustertwin.workload.formats import read
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.simulator.run import Backfill
from clustertwin.workload.simulator.squeue import Waiting, parse_squeue, read_size, read_squeue
from clustertwin.workload.simulator.whatif import Answer, Coming, Scenario, answer
from clustertwin.workload.simulator.whatif import futures as draw


@dataclass(frozen=True, slots=True)
class Answers:
    found: list[Answer]
    waiting: Waiting
    asked_s: float | None  # when Slurm was asked, since 1970: starts are counted from there; not known of a file


def answers(
    from_slurm: bool,
    squeue: Path | None,
    policies: Sequence[str],
    backfills: Sequence[str],
    sizes: Sequence[int],
    unit: Any,
    past: Path | None,
    load: float,
    futures: int,
    hours: float,
    seed: int,
) -> Answers:
    """Every policy with every way of backfilling on every machine, in the same futures."""
    if from_slurm == (squeue is not None):
        raise SettingsError("give either --from-slurm or --squeue FILE")
    asked_s = time.time() if squeue is None else None
    waiting = parse_squeue(read_squeue() if squeue is None else squeue.read_text())
    machines = list(sizes) or ([read_size(unit)] if from_slurm else [])
    if not machines:
        raise SettingsError("a file does not say how large the machine is: give --procs")
    rng = np.random.default_rng(seed)
    log = read(past) if past else None
    coming = newcomers(log, load, hours, rng) if log is not None and load > 0 else None
    drawn = draw(waiting, log, coming, futures, rng)
    scenarios = [
        Scenario(f"{policy}, {backfill}, {procs}", policy, cast(Backfill, backfill), procs)
        for procs in machines
        for policy in policies
        for backfill in backfills
    ]
    return Answers([answer(waiting, scenario, drawn, unit) for scenario in scenarios], waiting, asked_s)


def newcomers(log: Jobs, load: float, hours: float, rng: np.random.Generator) -> Coming:
    """Jobs of the next hours, as the default generator learnt them from the log, `load` times as dense."""
    fitted = generators.make().fit(log, rng)
    span_s = float(log.submit_s[-1] - log.submit_s[0])
    n = max(1, round(len(log) * load * hours * 3600 / max(span_s, 1.0)))

    def coming(rng: np.random.Generator) -> Jobs:
        jobs = fitted.sample(n, rng)
        since_s = jobs.submit_s - jobs.submit_s[0]
        return Jobs.build(
            submit_s=1.0 + since_s * (hours * 3600 / max(float(since_s[-1]), 1.0)),
            run_s=jobs.run_s,
            request_s=jobs.request_s,
            cpus=jobs.cpus,
            nodes=jobs.nodes,
            user=np.maximum(jobs.user, 0),
        )

    return coming
