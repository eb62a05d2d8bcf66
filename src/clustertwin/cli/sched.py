"""twin sched: schedule a job log, train a policy, ask what would be if."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import typer

from clustertwin.cli import sched_site
from clustertwin.cli.app import group
from clustertwin.cli.output import Json, err, print_json, print_table

app = group("Schedule job logs: simulate, train, study, what-if.")

Trace = typer.Argument(help="A job log: SWF, sacct, CSV or Parquet.", exists=True, dir_okay=False)
Procs = typer.Option(0, "--procs", help="Size of the machine; by default what the log's header says.")
Unit = typer.Option("cpus", help="What a job takes of the machine: cpus or nodes.")
Lenient = typer.Option(False, "--lenient", help="Mend what can be mended in the log.")


@app.command()
def simulate(
    trace: Path = Trace,
    policy: list[str] = typer.Option(["fcfs"], help="A policy, or FILE.safetensors; several give a comparison."),
    backfill: Literal["none", "easy", "conservative"] = typer.Option(
        "none", help="Whether later jobs may pass a blocked one."
    ),
    procs: int = Procs,
    gpus: int = typer.Option(0, help="GPUs of the machine; 0 leaves them out."),
    unit: Literal["cpus", "nodes"] = Unit,
    kill_at_limit: bool = typer.Option(False, "--kill-at-limit", help="End jobs at the time they asked for."),
    hold: bool | None = typer.Option(
        None, "--hold/--no-hold", help="Whether a picked job keeps the head of the queue."
    ),
    bound_s: float = typer.Option(10.0, help="Bound of the slowdown, seconds."),
    trim: float = typer.Option(0.0, help="Part of the jobs to leave out of the figures at each end."),
    out: Path | None = typer.Option(None, help="Write the schedule here, as a log with simulated waits (.swf)."),
    gantt: Path | None = typer.Option(None, help="Draw the schedule here (.png, .svg or .html)."),
    hours: tuple[float, float] = typer.Option((0.0, 0.0), help="FROM TO: draw only these hours of the log."),
    lenient: bool = Lenient,
    force: bool = typer.Option(False, "--force", help="Overwrite --out."),
    json: bool = Json,
) -> None:
    """Schedule a log with one or several policies and print what they are worth."""
    from clustertwin.workload.formats import read, write
    from clustertwin.workload.simulator import machine_size
    from clustertwin.workload.simulator import simulate as run

    jobs = read(trace, lenient=lenient)
    size = procs or machine_size(jobs, unit)
    with err.status("simulating (the very first run compiles, about ten seconds)"):
        schedules = [
            run(jobs, size, name, backfill, gpus=gpus, unit=unit, kill_at_limit=kill_at_limit, hold=hold)
            for name in policy
        ]
    if out:
        write(schedules[0].as_jobs(), out, force=force)
    if gantt:
        from clustertwin.workload.simulator.gantt import draw

        draw(schedules[0], gantt, hours if any(hours) else None)
    figures = [schedule.metrics(bound_s, trim) for schedule in schedules]
    remarks = {remark: len(ids) or 1 for remark, ids in schedules[0].remarks.items()}
    if json:
        rows: Any = [
            {"policy": s.policy, "backfill": backfill, **asdict(m)} for s, m in zip(schedules, figures, strict=True)
        ]
        print_json({"trace": str(trace), "procs": size, "schedules": rows, "remarks": remarks})
        return
    print_table(
        f"{trace.name}: {figures[0].jobs:,} jobs, {size:,} {unit}, backfilling: {backfill}",
        ["policy", "wait s", "p95 wait s", "slowdown", "95 %", "used", "fair"],
        [
            [
                schedule.policy,
                round(m.wait_s.mean),
                round(m.p95_wait_s),
                m.bounded_slowdown.mean,
                f"{m.bounded_slowdown.low:.4g} – {m.bounded_slowdown.high:.4g}",
                m.utilisation_ratio,
                m.fairness_ratio,
            ]
            for schedule, m in zip(schedules, figures, strict=True)
        ],
    )
    for remark, count in remarks.items():
        err.print(f"{count:,} jobs {remark}")


@app.command()
def evaluate(
    trace: Path = Trace,
    policy: list[str] = typer.Option(["fcfs", "sjf", "f1", "smallest", "wfp3", "unicep"], help="Policies to compare."),
    window: list[str] = typer.Option(..., help="FIRST:LAST, jobs scheduled on an empty machine; may be repeated."),
    backfill: Literal["none", "easy", "conservative"] = typer.Option(
        "none", help="Whether jobs may pass a blocked one."
    ),
    hold: bool | None = typer.Option(
        None, "--hold/--no-hold", help="Whether a picked job keeps the head of the queue."
    ),
    procs: int = Procs,
    unit: Literal["cpus", "nodes"] = Unit,
    lenient: bool = Lenient,
    json: bool = Json,
) -> None:
    """The mean bounded slowdown of policies on windows of a log, each begun on an empty machine."""
    from clustertwin.workload.formats import read
    from clustertwin.workload.policies import policy as find_policy
    from clustertwin.workload.rl.train import ranges
    from clustertwin.workload.rl.worth import Rules, slowdowns
    from clustertwin.workload.simulator import machine_size
    from clustertwin.workload.simulator.intake import take_in

    jobs = read(trace, lenient=lenient)
    size = procs or machine_size(jobs, unit)
    loads = [take_in(jobs.take(slice(first, last)), size, unit=unit).load for first, last in ranges(window)]
    policies = [find_policy(name) for name in policy]
    with err.status("simulating (the very first run compiles, about ten seconds)"):
        found = slowdowns(policies, loads, Rules(size, backfill=backfill, hold=hold))  # (policy, window)
    rows = [(p.name, float(values.mean()), values.tolist()) for p, values in zip(policies, found, strict=True)]
    if json:
        keys = ("policy", "bounded_slowdown", "windows")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        print_table(
            f"{trace.name}: {len(loads)} windows, backfilling: {backfill}",
            ["policy", "slowdown"],
            [r[:2] for r in rows],
        )


@app.command()
def train(
    trace: Path = Trace,
    out: Path = typer.Option(..., help="The trained policy, and the checkpoint it goes on from (.safetensors)."),
    backfill: Literal["none", "easy"] = typer.Option("none", help="none: a picked job blocks."),
    procs: int = Procs,
    unit: Literal["cpus", "nodes"] = Unit,
    ppo_rounds: int = typer.Option(20, help="Rounds of PPO; 0 leaves the stage out."),
    evolve_rounds: int = typer.Option(60, help="Rounds of evolution; 0 leaves the stage out."),
    sequences: int = typer.Option(16, min=1, help="That a generation is tried on; six times as many choose the best."),
    start: Literal["nothing", "order"] = typer.Option(
        "nothing", help="Begin from nothing, or from the best of three simple orders."
    ),
    hold_out: list[str] = typer.Option([], help="FIRST:LAST, jobs never trained on; may be repeated."),
    generator: str = typer.Option("", help="Also train on jobs that this generator makes of those not held out."),
    generated: int = typer.Option(20_000, min=64, help="How many."),
    real: bool = typer.Option(True, "--real/--no-real", help="--no-real: train on generated jobs alone."),
    seed: int = typer.Option(0),
    engine: Literal["here", "ray"] = typer.Option("here", help="Where rollouts run; ray: the cluster at RAY_ADDRESS."),
    restart: bool = typer.Option(False, "--restart", help="Begin anew even if --out is there."),
    lenient: bool = Lenient,
    json: bool = Json,
) -> None:
    """Train a policy on a log, or on jobs imagined after it. Killed and called again, it goes on where it was."""
    from clustertwin.cli.sched_train import run
    from clustertwin.workload.rl.train import TrainSettings

    settings = TrainSettings(ppo_rounds, evolve_rounds, seed=seed, start=start).tried_on(sequences)
    trained = run(
        trace, out, backfill, procs, unit, settings, hold_out, generator, generated, real, engine, restart, lenient
    )
    found = {"policy": str(out), "ratio_to_sjf": trained.judged_ratio, "seconds": trained.seconds}
    if json:
        print_json({**found, "rounds": [asdict(entry) for entry in trained.rounds]})
    else:
        print_table("trained", list(found), [list(found.values())])


@app.command()
def study(
    trace: Path = Trace,
    out: Path = typer.Option(..., help="A directory for the report and the trained policies; a killed study goes on."),
    synthetic: list[str] = typer.Option([], help="NAME=FILE, a synthetic log; may be repeated."),
    generator: list[str] = typer.Option(["crossover"], help="Generators to fit on the learning part; may be repeated."),
    times: float = typer.Option(
        1.0, min=0.1, help="How many times as long a generated log is as what it was learnt from."
    ),
    backfill: Literal["none", "easy"] = typer.Option("easy", help="How the machine is scheduled."),
    procs: int = Procs,
    unit: Literal["cpus", "nodes"] = Unit,
    held_out: float = typer.Option(0.3, help="The last part of the log, or of each stretch, to judge on."),
    stretches: int = typer.Option(1, min=1, help="Cut the log into so many, and hold out the end of each."),
    windows: int = typer.Option(10, help="Windows of 1,024 jobs to judge on."),
    seeds: int = typer.Option(3, help="Trainings a source."),
    both: bool = typer.Option(True, "--both/--no-both", help="Also train on real and synthetic together."),
    ppo_rounds: int = typer.Option(10),
    evolve_rounds: int = typer.Option(60),
    sequences: int = typer.Option(
        8, min=1, help="That first generations are tried on; six times as many choose the best."
    ),
    lenient: bool = Lenient,
    json: bool = Json,
) -> None:
    """Train on the real log, on synthetic ones and on both; judge all on real jobs held out."""
    from clustertwin.cli.sched_study import run

    rows = run(
        trace, out, synthetic, generator, times, backfill, procs, unit, held_out, stretches, windows, seeds, ppo_rounds,
        evolve_rounds, sequences, both, lenient,
    )  # fmt: skip
    if json:
        print_json([asdict(row) for row in rows])
        return
    print_table(
        f"{trace.name}: bounded slowdown on {windows} held-out windows, backfilling: {backfill}",
        ["trained on, or heuristic", "slowdown", "95 %", "to real", "95 %"],
        [
            [
                row.name,
                row.slowdown,
                f"{row.low:.4g} – {row.high:.4g}",
                row.ratio,
                f"{row.ratio_low:.3f} – {row.ratio_high:.3f}",
            ]
            for row in rows
        ],
    )


@app.command()
def whatif(
    from_slurm: bool = typer.Option(False, "--from-slurm", help="Ask squeue and sinfo on this machine."),
    squeue: Path | None = typer.Option(None, help="squeue's text in a file instead (see docs/scheduling.md)."),
    policy: list[str] = typer.Option(["fcfs"], help="Policies to try."),
    backfill: list[str] = typer.Option(["easy"], help="Ways of backfilling to try."),
    procs: list[int] = typer.Option([], help="Sizes of the machine to try; by default what sinfo says."),
    unit: Literal["cpus", "nodes"] = Unit,
    past: Path | None = typer.Option(None, help="A log of this machine; futures are drawn from it."),
    load: float = typer.Option(1.0, help="Newcomers, times as many as in the past."),
    futures: int = typer.Option(20, help="How many futures."),
    hours: float = typer.Option(24.0, help="How far ahead jobs keep coming."),
    seed: int = typer.Option(0),
    json: bool = Json,
) -> None:
    """When would the jobs that wait now start, under another policy, machine or load?"""
    from clustertwin.cli.sched_whatif import answers

    said = answers(from_slurm, squeue, policy, backfill, procs, unit, past, load, futures, hours, seed)
    waiting, found = said.waiting, said.found
    if json:
        counts = {"asked_s": said.asked_s, "running": waiting.running, "held": waiting.held}
        print_json({**counts, "scenarios": [asdict(entry) for entry in found]})
        return
    print_table(
        f"{len(waiting.jobs) - waiting.running} waiting jobs, {waiting.running} running, {waiting.held} held",
        ["policy", "backfilling", "size", "mean wait s", "4 of 5 futures", "last start s"],
        [
            [
                entry.scenario.policy,
                entry.scenario.backfill,
                entry.scenario.procs,
                entry.mean_wait_s,
                f"{entry.mean_wait_low_s:.4g} – {entry.mean_wait_high_s:.4g}",
                float(entry.start_s.max(initial=0.0)),
            ]
            for entry in found
        ],
    )


app.command("simulate-site")(sched_site.simulate_site)
app.command("validate")(sched_site.validate)
app.command("compare-config")(sched_site.compare_config)
