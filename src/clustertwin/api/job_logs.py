"""Job logs in Python: read, write, generate, compare, simulate, train a policy, try a Slurm configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.workload.fidelity.scorecard import Scorecard, scorecard
from clustertwin.workload.formats import read, write
from clustertwin.workload.generators import DEFAULT, WorkloadChange, make
from clustertwin.workload.generators.superposition import concatenate
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import counted_unit, machine_size, stated_machine_size
from clustertwin.workload.policies import Policy
from clustertwin.workload.simulator import Backfill, Schedule, SchedulingRules
from clustertwin.workload.simulator import simulate as simulate_jobs
from clustertwin.workload.slurm.site_simulation import SiteSchedule

Log = Jobs | Path | str


def read_log(path: Path | str, lenient: bool = False) -> Jobs:
    """The jobs of a log: SWF, sacct, ALCF or SuperCloud CSV, or Parquet, recognised by content.

    With `lenient`, damaged lines are repaired or left out, and a summary is logged.

    >>> import tempfile
    >>> import clustertwin as ct
    >>> path = Path(tempfile.mkdtemp()) / "log.swf"
    >>> ct.write_log(ct.example_log(50), path)
    50
    >>> len(ct.read_log(path))
    50
    """
    return read(path, lenient)


def write_log(jobs: Jobs, path: Path | str, force: bool = False) -> int:
    """Write a log in the format of the suffix (.swf, .csv, .sacct, .parquet, each also .gz); the number of jobs."""
    return write(jobs, path, force)


def generate(
    log: Log, jobs: int | None = None, seed: int = 0, generator: str = DEFAULT, change: WorkloadChange | None = None
) -> Jobs:
    """A synthetic log on which a scheduler behaves as on `log`. By default it has as many jobs.

    `change` asks what if: more load, other users, other sizes.

    >>> import clustertwin as ct
    >>> synthetic = ct.generate(ct.example_log(500), jobs=200, seed=1)
    >>> len(synthetic), bool((synthetic.run_s > 0).all())
    (200, True)
    """
    if isinstance(jobs, str):
        raise SettingsError(f"jobs is a number, not {jobs!r}; name the generator: generate(log, generator={jobs!r})")
    real, rng = _jobs(log), np.random.default_rng(seed)
    fitted = make(generator).fit(real, rng)
    change = change or WorkloadChange()
    count = len(real) if jobs is None and change.days is None else jobs
    return concatenate(fitted.what_if(count, np.random.default_rng(seed), change))


def compare(real: Log, synthetic: Log, procs: int | None = None, seed: int = 0) -> Scorecard:
    """How close a synthetic log is to the real one: distributions, load, users, privacy, waits under a scheduler."""
    return scorecard(_jobs(real), _jobs(synthetic), "synthetic", procs, seed)


def simulate(
    log: Log,
    policy: str | Policy | Callable[..., Any] = "fcfs",
    backfill: Backfill = "easy",
    procs: int | None = None,
    kill_at_limit: bool = False,
) -> Schedule:
    """Schedule a log on its own machine, or on one of `procs` processors (or nodes, if the log counts nodes).

    `policy` is a name (`fcfs`, `sjf`, `f1`, …), a file of `train_policy`, or a function of a request and the present.
    Jobs are backfilled by default; `twin sched simulate` does so only with `--backfill easy`.

    >>> import clustertwin as ct
    >>> schedule = ct.simulate(ct.example_log(300), policy="sjf")
    >>> len(schedule), schedule.backfill
    (300, 'easy')
    >>> bool((schedule.wait_s >= 0).all())
    True
    """
    jobs = _jobs(log)
    unit = counted_unit(jobs)
    if procs is not None and not isinstance(procs, int | np.integer):
        raise SettingsError(f"procs is a whole number of {unit}, not {procs!r}")
    return simulate_jobs(jobs, procs or machine_size(jobs), policy, backfill, unit=unit, kill_at_limit=kill_at_limit)


def train_policy(
    log: Log,
    out: Path | str,
    rounds: int = 60,
    backfill: Backfill = "easy",
    hold_out: Sequence[tuple[int, int]] = (),
    procs: int | None = None,
    seed: int = 0,
    across: Sequence[Log] = (),
) -> Policy:
    """A scheduling policy learned by evolution strategies from the jobs of a log; use it as `simulate(policy=…)`.

    `out` is its file and its checkpoint: a training that was interrupted continues. Jobs in the ranges `hold_out`
    (first, one past the last) are not trained on, so that you can measure on them. The logs `across` are trained on
    too, each on its own machine: such a policy is of more use on other logs.
    """
    from clustertwin.core.extras import require
    from clustertwin.workload.policies.learned import read_learned
    from clustertwin.workload.rl.policy_training import TrainSettings, train
    from clustertwin.workload.rl.training_sequences import OtherMachine, TrainingData
    from clustertwin.workload.simulator.admission import admit

    require("safetensors", "rl")
    jobs, out = _jobs(log), Path(out)
    unit = counted_unit(jobs)
    size = procs or stated_machine_size(jobs, unit)

    def elsewhere(log: Log) -> OtherMachine:
        jobs = _jobs(log)
        unit = counted_unit(jobs)
        size = stated_machine_size(jobs, unit)
        return OtherMachine(admit(jobs, size, unit=unit).records, size)

    admission = admit(jobs, size, unit=unit)
    held_out = admission.ranges(hold_out, len(jobs))
    data = TrainingData(admission.records, held_out, others=[elsewhere(log) for log in across])
    settings = TrainSettings(ppo_rounds=0, evolve_rounds=rounds, lead_rounds=rounds, seed=seed, start="order")
    train(data, SchedulingRules(size, backfill=backfill), settings, out)
    return read_learned(out)


def simulate_site(log: Log, site: Path | str) -> SiteSchedule:
    """Schedule jobs as a Slurm controller with this configuration would.

    `site` is a directory with slurm.conf, or a TOML file. `log` is a file of `sacct`, or a job log whose users, sizes
    and time limits are taken.
    """
    from clustertwin.workload.slurm.joblog.job_readers import read_log as read_slurm_log
    from clustertwin.workload.slurm.site.site_directory import read_site
    from clustertwin.workload.slurm.site_simulation import simulate_site as simulate_slurm

    slurm_log = _as_slurm(log) if isinstance(log, Jobs) else read_slurm_log(Path(log))
    return simulate_slurm(read_site(Path(site)), slurm_log)


def _jobs(log: Log) -> Jobs:
    if isinstance(log, Jobs):
        return log
    if isinstance(log, str | Path):
        return read(log)
    hint = "; use ct.Jobs.from_pandas(frame)" if hasattr(log, "to_numpy") else ""
    raise SettingsError(f"a log is a file or a job table, not {type(log).__name__}{hint}")


def _as_slurm(jobs: Jobs) -> Any:
    """The jobs of a log as sbatch would have submitted them: one task for each CPU, or whole nodes if it has no CPUs.

    A job of unknown run time runs to its limit.
    """
    from clustertwin.workload.slurm.joblog.job_table import SlurmJob, in_order

    users = jobs.names.get("user", ())
    names = ("id", "submit_s", "run_s", "request_s", "cpus", "nodes", "user")
    rows = zip(*(getattr(jobs, name).tolist() for name in names), strict=True)
    return in_order(
        [
            SlurmJob(
                number, submit_s, run_s if run_s >= 0 else math.inf,
                users[user] if 0 <= user < len(users) else f"user{user}",
                limit_s=limit_s if limit_s > 0 else math.nan, tasks=max(cpus if cpus > 0 else nodes, 1),
                **({"nodes_min": nodes, "nodes_max": nodes, "exclusive": True} if cpus <= 0 < nodes else {}),
            )
            for number, submit_s, run_s, limit_s, cpus, nodes, user in rows
        ],
        jobs.epoch_s,
    )  # fmt: skip
