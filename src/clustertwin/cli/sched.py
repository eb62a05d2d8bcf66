"""twin sched: simulate a job log, evaluate and train policies, predict start times."""

from __future__ import annotations

from dataclasses import asdict

from clustertwin.cli import sched_site
from clustertwin.cli.app import group
from clustertwin.cli.options import options
from clustertwin.cli.output import print_json, print_table
from clustertwin.cli.sched_options import (
    ChooseOptions,
    EvaluateOptions,
    SchedStudyOptions,
    SearchOptions,
    SimulateOptions,
    StartOptions,
    TrainOptions,
    TryOptions,
    WhatifOptions,
)
from clustertwin.core.formatting import counted

app = group("Schedule job logs: simulate a machine or a Slurm site, train policies, forecast starts.")


@app.command()
@options(SimulateOptions)
def simulate(options: SimulateOptions) -> None:
    """Schedule a log with one or more policies and print the metrics of each schedule."""
    from clustertwin.cli.sched_simulate import as_document, print_schedules, run_policies

    simulated = run_policies(options)
    if options.json:
        print_json(as_document(options, simulated))
    else:
        print_schedules(options, simulated)


@app.command()
@options(EvaluateOptions)
def evaluate(options: EvaluateOptions) -> None:
    """Print the mean bounded slowdown of policies on windows of a log, each on an idle machine."""
    from clustertwin.cli.sched_simulate import evaluate_policies

    rows = evaluate_policies(options)
    if options.json:
        print_json(rows)
        return
    print_table(
        f"{options.trace.name}: {counted(len(options.window), 'window')}, backfilling: {options.backfill}",
        ["policy", "slowdown"],
        [[row["policy"], row["bounded_slowdown"]] for row in rows],
    )


@app.command()
@options(ChooseOptions)
def choose(options: ChooseOptions) -> None:
    """Choose a policy by the first part of a log: the lowest slowdown without starvation. The rest judges it."""
    from clustertwin.cli.sched_choose import as_document, print_choice, run_choice

    choice = run_choice(options)
    if options.json:
        print_json(as_document(options, choice))
    else:
        print_choice(options, choice)


@app.command()
@options(TrainOptions)
def train(options: TrainOptions) -> None:
    """Train a policy on a log, on synthetic jobs, or on both. A killed training resumes when you call it again."""
    from clustertwin.cli.sched_train import run_training

    trained = run_training(options)
    summary = {"policy": str(options.out), "ratio_to_sjf": trained.validation_ratio, "seconds": trained.seconds}
    if options.json:
        print_json({**summary, "rounds": [asdict(entry) for entry in trained.rounds]})
    else:
        print_table("trained", ["policy", "slowdown relative to SJF, on the selection", "seconds"],
                    [list(summary.values())])  # fmt: skip


@app.command()
@options(SchedStudyOptions)
def study(options: SchedStudyOptions) -> None:
    """Train policies on a real log and on synthetic logs, and evaluate all of them on held-out real jobs."""
    from clustertwin.cli.sched_study import print_results, run_study

    results = run_study(options)
    if options.json:
        print_json([asdict(result) for result in results])
    else:
        print_results(options, results)


@app.command()
@options(WhatifOptions)
def whatif(options: WhatifOptions) -> None:
    """Predict when the jobs that wait now would start, under another policy, machine size or load."""
    from clustertwin.cli.sched_whatif import as_document, print_forecasts, run_forecasts

    forecasts = run_forecasts(options)
    if options.json:
        print_json(as_document(forecasts))
    else:
        print_forecasts(forecasts)


@app.command()
@options(StartOptions)
def start(options: StartOptions) -> None:
    """Predict when waiting jobs, or a job that you describe, start: 10, 50 and 90 % and a probability."""
    from clustertwin.cli.sched_start import as_document, print_starts, run_replay, run_start

    if options.replay is not None:
        score = run_replay(options)
        if options.json:
            print_json(score)
        else:
            print_table("forecasts of the second half", ["measure", "value"], [[*pair] for pair in score.items()])
        return
    starts = run_start(options)
    if options.json:
        print_json(as_document(starts))
    else:
        print_starts(starts)


@app.command()
@options(SearchOptions)
def search(options: SearchOptions) -> None:
    """Search priority weights of a Slurm site: choose on the first part of a log, judge on the rest."""
    from clustertwin.cli.sched_search import run_search

    run_search(options)


@app.command("try")
@options(TryOptions)
def try_change(options: TryOptions) -> None:
    """Try a change on the live queue: other weights, nodes added or drained. Nothing is changed in Slurm."""
    from clustertwin.cli.sched_try import print_change, run_change

    change, asked_s = run_change(options)
    if options.json:
        print_json({"asked_s": asked_s, **asdict(change)})
    else:
        print_change(change)


app.command("simulate-site")(sched_site.simulate_site)
app.command("validate")(sched_site.validate)
app.command("compare-config")(sched_site.compare_config)
