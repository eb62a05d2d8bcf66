"""`twin learn`: run a night, freeze and resume learning, simulate a month, measure how long a night takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clustertwin.cli import endpoint
from clustertwin.cli.app import group
from clustertwin.cli.home import Home, existing_home, open_store, recording_of
from clustertwin.cli.options import MOST_SEED, options
from clustertwin.cli.output import Json, print_json, print_table
from clustertwin.cli.recorded_command import recorded_command
from clustertwin.cli.step_progress import step_progress
from clustertwin.core.foreign_files import expanded

if TYPE_CHECKING:
    from clustertwin.telemetry.learning.champions.learning_state import LearningState
    from clustertwin.telemetry.learning.champions.registry import Registry
    from clustertwin.telemetry.learning.night.night_run import NightResult, NightSettings
    from clustertwin.telemetry.recording.trace_archive import TraceArchive

app = group("Nightly learning: train challengers on a day; the winner of a duel becomes the champion.")

Mlflow = typer.Option(
    "",
    "--mlflow",
    envvar="MLFLOW_TRACKING_URI",
    help="MLflow tracking server. Default: a database in the home. `none` turns MLflow off.",
)


@dataclass(frozen=True)
class RunOptions:
    home: Path = Home
    day: Annotated[str, typer.Option(help="The day to learn from, as 2026-11-15. Default: yesterday.")] = ""
    recordings: Annotated[
        list[Path] | None, typer.Option("--recording", help="Recordings to read. Default: those in the home.")
    ] = None
    prometheus: Annotated[str, typer.Option(help="Read the day from this server instead of recordings.")] = ""
    matchers: Annotated[str, typer.Option("--match", help='Select nodes on that server: instance=~"n1.*"')] = ""
    architectures: Annotated[
        str, typer.Option("--models", help="Architectures to train, such as linear,ae. Default: all.")
    ] = ""
    budget_s: Annotated[float, typer.Option("--budget-s", min=0, max=1e9, help="Wall time for all training.")] = 480.0
    workers: Annotated[int, typer.Option(min=1, help="How many challengers train at the same time.")] = 2
    gate: Annotated[
        bool,
        typer.Option(
            help="Reject a challenger that detects less than the champion, unless it raises fewer false events."
        ),
    ] = True
    false_event_cost: Annotated[
        float,
        typer.Option(min=0, help="Part of all faults that is worth as much as one false event per node and day."),
    ] = 0.05
    thread_hours: Annotated[
        float, typer.Option(min=0, help="The least evidence of a day: usable time of threads, counted once.")
    ] = 1.0
    mlflow: str = Mlflow
    username: str = endpoint.Username
    password_file: Path | None = endpoint.PasswordFile
    token_file: Path | None = endpoint.TokenFile
    ca_file: Path | None = endpoint.CaFile
    json: bool = Json


@app.command()
@options(RunOptions)
def run(options: RunOptions) -> None:
    """Run the night of one day.

    Train challengers on the day, let them duel with the champion and promote the winner. You can run a night again:
    it continues where it stopped.
    """
    from clustertwin.service.live.beside.night_runner import noted
    from clustertwin.telemetry.learning.night.calendar_day import day_of, yesterday
    from clustertwin.telemetry.learning.night.night_run import NightContext
    from clustertwin.telemetry.learning.night.nightly_cycle import run_night

    home, day = expanded(options.home), day_of(options.day) if options.day else yesterday(time.time())
    store = open_store(home, make=True)
    with noted(home, day), step_progress() as progress:
        context = NightContext(
            home,
            _archive(options),
            store,
            _night_settings(options),
            registry_opener(home, options.mlflow),
            progress=progress,
            command=recorded_command(),
        )
        night = run_night(context, day)
    if night.shadow_ended:
        store.append_audit("clustertwin", "shadow ended", "learning", time.time(), {"because": night.shadow_ended})
    _print_night(night, options.json)


@app.command()
def freeze(
    reason: str = typer.Argument("", help="The reason; pages and alerts show it."),
    home: Path = Home,
    json: bool = Json,
) -> None:
    """Turn nightly learning off until you resume it."""
    from clustertwin.telemetry.learning.champions import learning_state

    _print_state(learning_state.freeze(existing_home(home), reason), json)


@app.command()
def resume(home: Path = Home, json: bool = Json) -> None:
    """Turn nightly learning on again.

    Use this after a freeze, or after a confirmed anomaly halted learning. The anomaly stays excluded from training.
    """
    from clustertwin.telemetry.learning.champions import learning_state

    _print_state(learning_state.resume(existing_home(home)), json)


@app.command()
def simulate(
    days: int = typer.Option(30, min=1, help="Length of the month."),
    strategies: str = typer.Option("", help="Strategies to run, such as never,warm+replay. Default: all."),
    out: Path = typer.Option(..., "--out", help="Output directory. A strategy whose file exists is not run again."),
    seed: int = typer.Option(0, min=0, max=MOST_SEED, help="Random seed of the month."),
    workers: int = typer.Option(2, min=1, help="Strategies to run at the same time; the numbers do not depend on it."),
    unseen: float = typer.Option(0.0, min=0, max=1, help="Part of the jobs whose programs were never recorded."),
    foreign: bool = typer.Option(False, help="A foreign site: its usual programs were never recorded either."),
    json: bool = Json,
) -> None:
    """Simulate a month under each strategy.

    Print a table and draw OUT/month.png. With --unseen or --foreign the month begins with the shipped detector, jobs of
    every program go wrong every day, nobody gives a verdict, and the table has a row for each day.
    """
    from clustertwin.telemetry.studies.month.month_report import by_day, read_days
    from clustertwin.telemetry.studies.month.month_settings import DEFAULT_STRATEGY, MonthSettings
    from clustertwin.telemetry.studies.month.month_study import run_month
    from clustertwin.telemetry.studies.month.simulated_month import unseen_month

    names = strategies.split(",") if strategies else []
    settings = MonthSettings(days=days, seed=seed)
    if unseen or foreign:
        settings = replace(settings, world=unseen_month(unseen, foreign), vetted=False)
        names = names or [DEFAULT_STRATEGY]
    with step_progress() as progress:
        summaries = run_month(settings, out, names, workers, lambda done, total: progress("strategies", done, total))
    if json:
        print_json([asdict(summary) for summary in summaries])
        return
    if unseen or foreign:
        heads = ("day", "", "false events per node-day", "found, usual", "found, new", "faults seen", "night")
        for summary in summaries:
            rows = by_day(read_days(out / f"{summary.strategy}.json"))
            print_table(f"{summary.strategy}: {days} simulated days", heads, rows)
        return
    columns = (
        "strategy",
        "error",
        "false events per node-day",
        "on days without a change",
        "jobs found",
        "days until the disk is found",
        "recall of the disk, worst day",
        "golden set",
        "golden set, worst day",
        "forgetting",
        "promoted",
        "halted",
        "training h",
    )
    print_table(f"{days} simulated days", columns, [tuple(asdict(summary).values()) for summary in summaries])


@app.command()
def timing(
    out: Path | None = typer.Option(None, "--out", help="Draw a figure to this file, such as timing.png."),
    hours: str = typer.Option("1,4,24", help="Lengths of the day to measure."),
    threads: str = typer.Option("32,160", help="Cluster sizes to measure, in threads; a node has 32."),
    architectures: str = typer.Option("linear", "--models", help="Architectures to train."),
    json: bool = Json,
) -> None:
    """Measure how long a night takes.

    Run a night on simulated days of different sizes and print the seconds of each step.
    """
    from clustertwin.telemetry.studies.night_timing import draw_timings, time_nights

    with step_progress() as progress:
        timings = time_nights(
            [float(text) for text in hours.split(",")],
            [int(text) for text in threads.split(",")],
            tuple(architectures.split(",")),
            progress,
        )
    if out is not None:
        draw_timings(timings, out)
    if json:
        print_json([asdict(timing) for timing in timings])
        return
    columns = ("hours", "nodes", "threads", "windows", *timings[0].seconds, "total", "CPU")
    rows = [(t.hours, t.nodes, t.threads, t.windows, *t.seconds.values(), t.total_s, t.cpu_s) for t in timings]
    print_table("seconds of each step", columns, rows)


def registry_opener(home: Path, mlflow: str) -> Callable[[], Registry] | None:
    """A function that opens the registry that --mlflow names; None if it is off."""
    from clustertwin.telemetry.learning.champions.mlflow_registry import MlflowRegistry, embedded_uri
    from clustertwin.telemetry.learning.champions.registry_process import RegistryProcess

    if mlflow == "none":
        return None
    return (lambda: RegistryProcess(mlflow)) if mlflow else lambda: MlflowRegistry(embedded_uri(home))


def _archive(options: RunOptions) -> TraceArchive:
    from clustertwin.telemetry.recording.trace_archive import PrometheusArchive, RecordingArchive

    if not options.prometheus:
        return RecordingArchive(options.recordings or [recording_of(expanded(options.home))])
    return PrometheusArchive(endpoint.build(options.prometheus, options), options.matchers)


def _night_settings(options: RunOptions) -> NightSettings:
    from clustertwin.telemetry.learning.duel.duel_rule import DuelRule
    from clustertwin.telemetry.learning.night.calendar_day import DayLimits
    from clustertwin.telemetry.learning.night.night_run import NightSettings

    settings = NightSettings(
        budget_s=options.budget_s,
        workers=options.workers,
        rule=DuelRule(gate=options.gate, false_event_cost=options.false_event_cost),
        limits=DayLimits(thread_hours=options.thread_hours),
    )
    if not options.architectures:
        return settings
    return replace(settings, architectures=tuple(options.architectures.split(",")))


def _print_night(night: NightResult, json: bool) -> None:
    if json:
        print_json(asdict(night))
        return
    from clustertwin.telemetry.learning.duel.golden_set import GoldenSetResult

    rows = [
        (row["name"], row["error"], row["bits"], row["false_alarms"], golden.informedness, row["false_events"])
        for row in night.contestants
        for golden in [GoldenSetResult(**row["detection"])]
    ]
    if rows:
        columns = ("contestant", "error", "bits", "false alarms", "faults seen", "false events per node-day")
        print_table(f"Night of {night.day}", columns, rows)
    typer.echo(f"{night.day}: {night.outcome}: {night.because}. In service: {night.champion}")
    for note in [*(f"{name} is rejected: {why}" for name, why in night.refused.items()), *night.notes]:
        typer.echo(f"  {note}")
    if night.registry:
        typer.echo(f"  registry: {night.registry}")


def _print_state(state: LearningState, json: bool) -> None:
    if json:
        print_json({"state": state.status, "reason": state.reason, **asdict(state)})
    else:
        typer.echo(f"{state.status}{': ' + state.reason if state.reason else ''}")
