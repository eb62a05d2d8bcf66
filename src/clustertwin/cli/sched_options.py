"""The options of `twin sched`: one frozen dataclass for each command."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import typer

from clustertwin.cli.log_argument import log_argument
from clustertwin.cli.options import MOST_SEED
from clustertwin.cli.output import Json

TraceArgument = Annotated[Path, log_argument("A job log: SWF, sacct, CSV or Parquet")]
Procs = Annotated[
    int,
    typer.Option(min=0, max=2**31, show_default=False, help="Size of the machine; by default that of the log."),
]
Unit = Annotated[Literal["cpus", "nodes"], typer.Option(help="What jobs and the machine are counted in.")]
Lenient = Annotated[bool, typer.Option("--lenient", help="Repair faulty lines of the log instead of refusing it.")]
Backfill = Annotated[
    Literal["none", "easy", "conservative"], typer.Option(help="How jobs may start ahead of a blocked one.")
]
TrainedBackfill = Annotated[Literal["none", "easy"], typer.Option(help="How jobs may start ahead of a blocked one.")]
Hold = Annotated[
    bool | None,
    typer.Option("--hold/--no-hold", help="Whether a selected job keeps the head of the queue until it fits."),
]
PpoRounds = Annotated[int, typer.Option(min=0, help="Rounds of PPO; 0 skips this stage.")]
EvolveRounds = Annotated[int, typer.Option(min=0, help="Rounds of evolution; 0 skips this stage.")]
Sequences = Annotated[
    int,
    typer.Option(min=1, help="Training sequences per generation; six times as many select the best candidate."),
]

Restart = Annotated[
    bool, typer.Option("--force", "--restart", help="Start again and overwrite --out instead of resuming from it.")
]
Policies = Annotated[list[str], typer.Option(help="A policy or FILE.safetensors; repeat it for more.")]
QueueFile = Annotated[
    Path | None, typer.Option(help="Read the queue from a file with squeue's output; by default ask Slurm.")
]
Past = Annotated[Path | None, typer.Option(help="A log of this machine; run times and new jobs are drawn from it.")]
Hours = Annotated[float, typer.Option(min=0, max=24 * 366, help="For how many hours new jobs are submitted; 0: none.")]
Futures = Annotated[int, typer.Option(min=1, help="Number of futures to draw.")]
Seed = Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Random seed.")]


@dataclass(frozen=True)
class SimulateOptions:
    trace: TraceArgument
    policy: Annotated[list[str], typer.Option(help="A policy or FILE.safetensors; repeat it to compare policies.")] = (
        field(default_factory=lambda: ["fcfs"])
    )
    backfill: Backfill = "none"
    estimates: Annotated[
        Literal["requested", "last-two", "predicted"],
        typer.Option(help="Run times that backfilling plans with: limits, the user's last two jobs, or predictions."),
    ] = "requested"
    patience_h: Annotated[
        float, typer.Option(min=0.0, help="Jobs that have waited this many hours go first, the oldest first; 0: never.")
    ] = 0.0
    procs: Procs = 0
    gpus: Annotated[int, typer.Option(min=0, max=2**31, help="GPUs of the machine; 0 ignores GPUs.")] = 0
    unit: Unit = "cpus"
    kill_at_limit: Annotated[bool, typer.Option("--kill-at-limit", help="End jobs at their time limit.")] = False
    hold: Hold = None
    bound_s: Annotated[float, typer.Option(min=0.001, max=1e9, help="Bound of the bounded slowdown, in seconds.")] = (
        10.0
    )
    trim: Annotated[float, typer.Option(help="Share of the jobs to leave out of the metrics at each end.")] = 0.0
    out: Annotated[
        Path | None, typer.Option(help="Write the first schedule to this file, as a log with simulated waits (.swf).")
    ] = None
    gantt: Annotated[
        Path | None,
        typer.Option(help="Draw the first schedule to this file: .html zooms; .png and .svg need matplotlib."),
    ] = None
    hours: Annotated[
        tuple[float, float], typer.Option(show_default=False, help="FROM TO: draw only these hours of the log.")
    ] = (0.0, 0.0)
    lenient: Lenient = False
    force: Annotated[bool, typer.Option("--force", help="Overwrite --out and --gantt.")] = False
    json: bool = Json


@dataclass(frozen=True)
class EvaluateOptions:
    trace: TraceArgument
    window: Annotated[
        list[str], typer.Option(help="FIRST:LAST, jobs to schedule on an idle machine; repeat it for more windows.")
    ]
    policy: Policies = field(default_factory=lambda: ["fcfs", "sjf", "f1", "smallest", "wfp3", "unicep"])
    backfill: Backfill = "none"
    hold: Hold = None
    procs: Procs = 0
    unit: Unit = "cpus"
    lenient: Lenient = False
    json: bool = Json


@dataclass(frozen=True)
class ChooseOptions:
    trace: TraceArgument
    policy: Policies = field(default_factory=lambda: ["fcfs", "sjf", "f1", "smallest", "wfp3", "unicep"])
    first_part: Annotated[
        float, typer.Option(min=0.1, max=0.9, help="Part of the log that chooses; the rest judges the choice.")
    ] = 0.5
    patience_h: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Jobs that have waited for these hours go first; 0: with learned policies, the longest time limit.",
        ),
    ] = 0.0
    backfill: Backfill = "easy"
    procs: Procs = 0
    unit: Unit = "cpus"
    lenient: Lenient = False
    json: bool = Json


@dataclass(frozen=True)
class TrainOptions:
    trace: TraceArgument
    out: Annotated[
        Path, typer.Option(help="File of the trained policy (.safetensors); a killed training resumes from it.")
    ]
    backfill: TrainedBackfill = "none"
    procs: Procs = 0
    unit: Unit = "cpus"
    ppo_rounds: PpoRounds = 20
    evolve_rounds: EvolveRounds = 60
    sequences: Sequences = 16
    start: Annotated[
        Literal["nothing", "order"],
        typer.Option(help="Start from random weights (nothing) or from the best of three simple orders (order)."),
    ] = "nothing"
    hold_out: Annotated[
        list[str], typer.Option(help="FIRST:LAST, jobs that are not trained on; repeat it for more ranges.")
    ] = field(default_factory=list)
    generator: Annotated[
        str, typer.Option(help="Also train on synthetic jobs of this generator, fitted to the jobs not held out.")
    ] = ""
    generated: Annotated[int, typer.Option(min=64, help="Number of synthetic jobs.")] = 20_000
    across: Annotated[
        list[str],
        typer.Option(help="LOG or LOG=PROCS: train also on this log, on its own machine; repeat it for more logs."),
    ] = field(default_factory=list)
    real: Annotated[
        bool, typer.Option("--real/--no-real", help="With --no-real, train on the synthetic jobs only.")
    ] = True
    seed: Seed = 0
    engine: Annotated[
        Literal["here", "ray"],
        typer.Option(help="Where rollouts run: this process, or the Ray cluster at RAY_ADDRESS."),
    ] = "here"
    restart: Restart = False
    lenient: Lenient = False
    json: bool = Json


@dataclass(frozen=True)
class SchedStudyOptions:
    trace: TraceArgument
    out: Annotated[Path, typer.Option(help="Directory of the report and the policies; a killed study resumes from it.")]
    synthetic: Annotated[
        list[str], typer.Option(help="NAME=FILE, a synthetic log to train on; repeat it for more logs.")
    ] = field(default_factory=list)
    generator: Annotated[
        list[str], typer.Option(help="A generator to fit to the training part of the log; repeat it for more.")
    ] = field(default_factory=lambda: ["crossover"])
    times: Annotated[
        float, typer.Option(min=0.1, help="Length of a generated log, as a multiple of the training part.")
    ] = 1.0
    backfill: TrainedBackfill = "easy"
    procs: Procs = 0
    unit: Unit = "cpus"
    held_out: Annotated[float, typer.Option(help="Share at the end of the log, or of each stretch, to hold out.")] = 0.3
    stretches: Annotated[
        int, typer.Option(min=1, help="Cut the log into this number of stretches and hold out the end of each.")
    ] = 1
    windows: Annotated[int, typer.Option(min=1, help="Windows of 1,024 held-out jobs to evaluate on.")] = 10
    seeds: Annotated[int, typer.Option(min=1, help="Trainings per source.")] = 3
    both: Annotated[
        bool, typer.Option("--both/--no-both", help="Also train on the real and a synthetic log together.")
    ] = True
    ppo_rounds: PpoRounds = 10
    evolve_rounds: EvolveRounds = 60
    sequences: Sequences = 8
    restart: Restart = False
    lenient: Lenient = False
    json: bool = Json


@dataclass(frozen=True)
class WhatifOptions:
    from_slurm: Annotated[
        bool, typer.Option("--from-slurm", help="Read the queue from squeue and the machine size from sinfo.")
    ] = False
    squeue: Annotated[
        Path | None, typer.Option(help="Read the queue from a file with squeue's output (see docs/scheduling.md).")
    ] = None
    policy: Annotated[list[str], typer.Option(help="A policy to try; repeat it for more.")] = field(
        default_factory=lambda: ["fcfs"]
    )
    backfill: Annotated[list[str], typer.Option(help="none, easy or conservative; repeat it to try more than one.")] = (
        field(default_factory=lambda: ["easy"])
    )
    procs: Annotated[
        list[int],
        typer.Option(
            min=1, max=2**31, help="A machine size to try; by default the size from sinfo. Repeat it for more."
        ),
    ] = field(default_factory=list)
    unit: Unit = "cpus"
    past: Past = None
    load: Annotated[float, typer.Option(min=0, max=1e6, help="Rate of new jobs, relative to the log of the past.")] = (
        1.0
    )
    futures: Futures = 20
    hours: Annotated[float, typer.Option(min=0, max=24 * 366, help="For how many hours new jobs are submitted.")] = 24.0
    seed: Seed = 0
    json: bool = Json


@dataclass(frozen=True)
class StartOptions:
    job: Annotated[str, typer.Option(help="A waiting job, by its Slurm id; by default all waiting jobs.")] = ""
    like: Annotated[
        str, typer.Option(help="A job that you might submit now, for example '4 nodes, 2 h, gpu, user ada'.")
    ] = ""
    site: Annotated[
        Path | None,
        typer.Option(help="Schedule as slurmctld would on this site: a directory with slurm.conf, or a .toml file."),
    ] = None
    squeue: QueueFile = None
    past: Past = None
    hangs: Annotated[
        list[str],
        typer.Option(metavar="JOB[=SURE]", help="A running job that hangs and runs to its limit: 4711, or 4711=0.9."),
    ] = field(default_factory=list)
    within_h: Annotated[
        float, typer.Option(min=0.0, max=24 * 366, help="Also print the probability of a start within these hours.")
    ] = 1.0
    procs: Annotated[
        int, typer.Option(min=0, max=2**31, help="Size of the machine; by default the size from sinfo.")
    ] = 0
    unit: Unit = "cpus"
    futures: Futures = 100
    replay: Annotated[
        Path | None, typer.Option(help="Judge forecasts on this log instead: ask at submissions, then see the starts.")
    ] = None
    asked: Annotated[int, typer.Option(min=2, help="With --replay: jobs of each half of the log to ask about.")] = 200
    hours: Hours = 24.0
    seed: Seed = 0
    json: bool = Json


@dataclass(frozen=True)
class SearchOptions:
    log: Annotated[Path, log_argument("A job log: sacct --parsable2, or sbatch events")]
    site: Annotated[
        Path,
        typer.Option(help="A directory with slurm.conf, a slurm.conf, or a .toml file.", exists=True),
    ]
    objective: Annotated[
        str, typer.Option(help="What to lower, separated by commas: wait, p95, slowdown, fairness, large.")
    ] = "wait,fairness"
    candidates: Annotated[int, typer.Option(min=2, max=10_000, help="Number of weights to try.")] = 40
    first_part: Annotated[
        float, typer.Option(min=0.1, max=0.9, help="Part of the log on which weights are chosen; the rest judges them.")
    ] = 0.6
    out: Annotated[
        Path | None, typer.Option(help="Write the chosen weights to this file, as lines for slurm.conf.")
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file of --out.")] = False
    jobs: Annotated[int, typer.Option(min=0, help="Take only the first jobs of the log; 0 takes all.")] = 0
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Random seed of the candidates.")] = 0
    json: bool = Json


@dataclass(frozen=True)
class TryOptions:
    site: Annotated[Path, typer.Option(help="A directory with slurm.conf, a slurm.conf, or a .toml file.", exists=True)]
    weight: Annotated[
        list[str],
        typer.Option(help="NAME=NUMBER: age, fair_share, job_size, partition or qos; repeat it for more weights."),
    ] = field(default_factory=list)
    add_nodes: Annotated[int, typer.Option(min=0, help="Add this number of nodes.")] = 0
    like_node: Annotated[
        str, typer.Option(help="Added nodes are like this one; by default like those of the largest group.")
    ] = ""
    drain: Annotated[str, typer.Option(help="Nodes to drain, for example n[1-4]: running jobs end there.")] = ""
    squeue: QueueFile = None
    sprio: Annotated[
        Path | None, typer.Option(help="Read factors of priorities from a file; by default ask Slurm.")
    ] = None
    past: Annotated[Path | None, typer.Option(help="A sacct log; run times and new jobs are drawn from it.")] = None
    futures: Futures = 20
    hours: Hours = 24.0
    seed: Seed = 0
    json: bool = Json
