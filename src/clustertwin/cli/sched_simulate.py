"""Run `twin sched simulate` and `twin sched evaluate`: options -> schedules, files and metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from clustertwin.cli.output import err, print_table
from clustertwin.cli.sched_notes import SIMULATING, print_remarks, print_untrained
from clustertwin.cli.sched_options import EvaluateOptions, SimulateOptions
from clustertwin.core.errors import SettingsError
from clustertwin.core.files import refuse_existing
from clustertwin.workload.formats import read, write
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import stated_machine_size
from clustertwin.workload.policies import find_policy
from clustertwin.workload.policies.patience import with_patience
from clustertwin.workload.rl.policy_evaluation import mean_slowdowns
from clustertwin.workload.rl.policy_training import parse_ranges
from clustertwin.workload.simulator import Schedule, ScheduleMetrics, SchedulingRules, simulate
from clustertwin.workload.simulator.admission import admit


@dataclass(frozen=True, slots=True)
class SimulatedPolicies:
    procs: int
    schedules: list[Schedule]  # one for each policy
    metrics: list[ScheduleMetrics]
    remarks: dict[str, int]  # remark -> number of jobs; 0 if it is not about single jobs


def run_policies(options: SimulateOptions) -> SimulatedPolicies:
    """Schedule the log with every policy. Writes --out and --gantt from the first schedule."""
    for file in (options.out, options.gantt):
        if file is not None:
            refuse_existing(file, options.force)
    if any(options.hours) and not options.hours[0] < options.hours[1]:
        raise SettingsError(f"--hours {options.hours[0]:g} {options.hours[1]:g}: the end must be after the start")
    jobs = read(options.trace, lenient=options.lenient)
    procs = options.procs or stated_machine_size(jobs, options.unit)
    rules: dict[str, Any] = {
        "gpus": options.gpus, "unit": options.unit, "kill_at_limit": options.kill_at_limit, "hold": options.hold
    }  # fmt: skip
    with err.status(SIMULATING):
        if options.estimates == "requested":
            policies = [find_policy(name) for name in options.policy]
            if options.patience_h:
                policies = [with_patience(policy, options.patience_h * 3600) for policy in policies]
            schedules = [simulate(jobs, procs, policy, options.backfill, **rules) for policy in policies]
        else:
            schedules = [_with_estimates(options, jobs, procs)]
    if options.out:
        write(schedules[0].as_jobs(), options.out, force=options.force)
    if options.gantt:
        from clustertwin.workload.simulator.gantt import draw

        draw(schedules[0], options.gantt, options.hours if any(options.hours) else None)
    metrics = [schedule.metrics(options.bound_s, options.trim) for schedule in schedules]
    remarks = {remark: len(ids) for schedule in schedules for remark, ids in schedule.remarks.items()}
    return SimulatedPolicies(procs, schedules, metrics, remarks)


def _with_estimates(options: SimulateOptions, jobs: Jobs, procs: int) -> Schedule:
    from clustertwin.workload.simulator.simulate_estimates import EstimateSettings, simulate_estimates

    if options.backfill != "easy" or options.policy != ["fcfs"] or options.hold:
        raise SettingsError(f"--estimates {options.estimates} works with --backfill easy, --policy fcfs and --no-hold")
    settings = EstimateSettings(options.estimates)
    return simulate_estimates(
        jobs, procs, settings, gpus=options.gpus, unit=options.unit, kill_at_limit=options.kill_at_limit
    )


def as_document(options: SimulateOptions, simulated: SimulatedPolicies) -> dict[str, Any]:
    """The JSON document of `simulate`."""
    rows = [
        {"policy": schedule.policy, "backfill": options.backfill, **asdict(metrics)}
        for schedule, metrics in zip(simulated.schedules, simulated.metrics, strict=True)
    ]
    remarks = {remark: count or 1 for remark, count in simulated.remarks.items()}
    return {"trace": str(options.trace), "procs": simulated.procs, "schedules": rows, "remarks": remarks}


def print_schedules(options: SimulateOptions, simulated: SimulatedPolicies) -> None:
    """The metrics as a table, and the remarks on standard error."""
    jobs = simulated.metrics[0].jobs
    print_table(
        f"{options.trace.name}: {jobs:,} jobs, {simulated.procs:,} {options.unit}, backfilling: {options.backfill}",
        ["policy", "mean wait s", "p95 wait s", "slowdown", "95 %", "used", "fair"],
        [
            [
                schedule.policy,
                round(metrics.wait_s.mean),
                round(metrics.p95_wait_s),
                metrics.bounded_slowdown.mean,
                f"{metrics.bounded_slowdown.low:.4g} – {metrics.bounded_slowdown.high:.4g}",
                round(metrics.utilisation_ratio, 3),
                round(metrics.fairness_ratio, 3),
            ]
            for schedule, metrics in zip(simulated.schedules, simulated.metrics, strict=True)
        ],
    )
    err.print(
        f"p95: 95 % of the jobs wait less. slowdown: (wait + run time) / run time, bounded at {options.bound_s:g} s; "
        "then its 95 % interval. used: part of the machine's time. fair: 1 if all users have the same slowdown.",
        style="dim",
        soft_wrap=True,
    )
    print_remarks(simulated.remarks)


def evaluate_policies(options: EvaluateOptions) -> list[dict[str, Any]]:
    """The mean bounded slowdown of every policy, overall and for each window."""
    jobs = read(options.trace, lenient=options.lenient)
    procs = options.procs or stated_machine_size(jobs, options.unit)
    ranges = parse_ranges(options.window)
    for first, last in ranges:
        if not 0 <= first < min(last, len(jobs)):
            raise SettingsError(f"--window {first}:{last} has no job; the log has jobs 0:{len(jobs)}")
        if last > len(jobs):
            err.print(f"--window {first}:{last}: the log ends with job {len(jobs):,}, so the window does too")
    admissions = [admit(jobs.take(slice(first, last)), procs, unit=options.unit) for first, last in ranges]
    windows = [admission.records for admission in admissions]
    remarks: Counter[str] = Counter()
    for admission in admissions:
        remarks.update({remark: len(ids) for remark, ids in admission.remarks.items()})
    print_remarks(remarks)
    policies = [find_policy(name) for name in options.policy]
    rules = SchedulingRules(procs, backfill=options.backfill, hold=options.hold)
    print_untrained(policies, np.concatenate(windows), procs)
    with err.status(SIMULATING):
        slowdowns = mean_slowdowns(policies, windows, rules)  # (policy, window)
    return [
        {"policy": policy.name, "bounded_slowdown": float(values.mean()), "windows": values.tolist()}
        for policy, values in zip(policies, slowdowns, strict=True)
    ]
