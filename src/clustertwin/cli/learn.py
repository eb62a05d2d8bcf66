"""`twin learn`: the night's duel, its brake, a simulated month and how long things take."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clustertwin.cli import endpoint
from clustertwin.cli.app import group
from clustertwin.cli.home import Home, open_store, recording_of
from clustertwin.cli.output import Json, err, print_json, print_table

if TYPE_CHECKING:
    from clustertwin.telemetry.learning.champions.learning_state import LearningState
    from clustertwin.telemetry.learning.champions.registry_spool import Book
    from clustertwin.telemetry.learning.night.step_log import Night

app = group("Learning: every night challengers are trained on yesterday, and the best becomes champion.")

Mlflow = typer.Option(
    "", "--mlflow", envvar="MLFLOW_TRACKING_URI", help="A tracking server; default: a database in the home; none: off."
)


@app.command()
def run(
    home: Path = Home,
    day: str = typer.Option("", help="Which day, as 2026-11-15; default: yesterday."),
    recordings: list[Path] | None = typer.Option(None, "--recording", help="Recordings; default: those of the home."),
    prometheus: str = typer.Option("", help="Read the day from this server instead."),
    matchers: str = typer.Option("", "--match", help='Narrow the nodes there: instance=~"n1.*"'),
    architectures: str = typer.Option("", "--models", help="Challengers, such as linear,ae; default: every one."),
    budget_s: float = typer.Option(480.0, "--budget-s", help="Time for all training."),
    workers: int = typer.Option(2, min=1, help="Challengers trained side by side."),
    gate: bool = typer.Option(True, help="Who sees less of the golden set than the champion may not win."),
    mlflow: str = Mlflow,
    username: str = endpoint.Username,
    password_file: Path | None = endpoint.PasswordFile,
    token_file: Path | None = endpoint.TokenFile,
    ca_file: Path | None = endpoint.CaFile,
    json: bool = Json,
) -> None:
    """Live through one night: train challengers on a day, let them duel, promote the winner. Safe to repeat."""
    from clustertwin.service.live.night_runner import noted
    from clustertwin.telemetry.learning.duel.verdict_of_duel import Rule
    from clustertwin.telemetry.learning.night import nightly_cycle
    from clustertwin.telemetry.learning.night.calendar_day import day_of, yesterday
    from clustertwin.telemetry.recording.trace_archive import PrometheusArchive, RecordingArchive, TraceArchive

    home, which = home.expanduser(), day_of(day) if day else yesterday(time.time())
    settings = nightly_cycle.CycleSettings(budget_s=budget_s, workers=workers, rule=Rule(gate=gate))
    if architectures:
        settings = replace(settings, architectures=tuple(architectures.split(",")))
    command = shlex.join(["twin", *(Path(word).name or word for word in sys.argv[1:])])
    with noted(home, which), _bar() as progress:
        if prometheus:
            server = endpoint.build(
                prometheus, username=username, password_file=password_file, token_file=token_file, ca_file=ca_file
            )
            past: TraceArchive = PrometheusArchive(server, matchers)
        else:
            past = RecordingArchive(recordings or [recording_of(home)])
        site = nightly_cycle.Site(
            home, past, open_store(home, make=True), settings, book_of(home, mlflow), progress=progress, command=command
        )
        night = nightly_cycle.run(site, which)
    _show(night, json)


@app.command()
def freeze(
    reason: str = typer.Argument("", help="Why; pages and alarms repeat it."), home: Path = Home, json: bool = Json
) -> None:
    """Learn nothing until resumed."""
    from clustertwin.telemetry.learning.champions.learning_state import freeze as frozen

    _state(frozen(home.expanduser(), reason), json)


@app.command()
def resume(home: Path = Home, json: bool = Json) -> None:
    """Learn again: thaw, or lift the halt that a confirmed anomaly caused; that anomaly stays left out."""
    from clustertwin.telemetry.learning.champions.learning_state import resume as resumed

    _state(resumed(home.expanduser()), json)


@app.command()
def simulate(
    days: int = typer.Option(30, min=1, help="How long."),
    strategies: str = typer.Option("", help="Some of them, such as never,warm+replay; default: all."),
    out: Path = typer.Option(..., "--out", help="A directory; a strategy that is there already is not run again."),
    seed: int = typer.Option(0, help="The same seed gives the same month."),
    workers: int = typer.Option(2, min=1, help="Strategies lived side by side; the numbers are the same for any."),
    json: bool = Json,
) -> None:
    """A simulated month under each strategy of learning, side by side, and OUT/month.png."""
    from clustertwin.telemetry.studies.month.month_study import MonthSettings, run_month

    names = strategies.split(",") if strategies else []
    with _bar() as progress:
        settings = MonthSettings(days=days, seed=seed)
        rows = run_month(settings, out, names, workers, lambda done, of: progress("months", done, of))
    if json:
        print_json([asdict(row) for row in rows])
        return
    columns = (
        "strategy",
        "error",
        "false events a node-day",
        "on usual days",
        "jobs found",
        "disk found after days",
        "disk seen at worst",
        "golden set",
        "at worst",
        "forgetting",
        "promoted",
        "halted",
        "training h",
    )
    print_table(f"{days} days", columns, [tuple(asdict(row).values()) for row in rows])


@app.command()
def timing(
    out: Path | None = typer.Option(None, "--out", help="A picture, such as timing.png."),
    hours: str = typer.Option("1,4,24", help="Lengths of a day to try."),
    threads: str = typer.Option("32,160", help="Sizes of the cluster to try, in threads; 32 a node."),
    architectures: str = typer.Option("linear", "--models", help="Challengers."),
    json: bool = Json,
) -> None:
    """How long each step of a night takes against the amount of data."""
    from clustertwin.telemetry.studies.night_timing import draw, measure

    with _bar() as progress:
        rows = measure(
            [float(h) for h in hours.split(",")],
            [int(n) for n in threads.split(",")],
            tuple(architectures.split(",")),
            progress,
        )
    if out is not None:
        draw(rows, out)
    if json:
        print_json([asdict(row) for row in rows])
        return
    steps = list(rows[0].seconds)
    cells = [
        (row.hours, row.nodes, row.threads, row.windows, *row.seconds.values(), row.total_s, row.cpu_s) for row in rows
    ]
    print_table("seconds of each step", ("hours", "nodes", "threads", "windows", *steps, "total", "CPU"), cells)


def book_of(home: Path, mlflow: str) -> Callable[[], Book] | None:
    """The registry that the options name; opened only when it is needed."""
    from clustertwin.telemetry.learning.champions.registry import Registry, embedded

    return None if mlflow == "none" else lambda: Registry(mlflow or embedded(home))


@contextmanager
def _bar() -> Iterator[Callable[[str, int, int], None]]:
    from rich.progress import Progress

    with Progress(console=err, transient=True) as bar:
        task = bar.add_task("")
        yield lambda step, done, of: bar.update(task, description=step, completed=done, total=of)


def _show(night: Night, json: bool) -> None:
    if json:
        print_json(asdict(night))
        return
    from clustertwin.telemetry.learning.duel.golden_set import Detection

    rows = [
        (row["name"], row["error"], row["false_alarms"], seen.mean, seen.false_alarms)
        for row in night.contestants
        for seen in [Detection(**row["detection"])]
    ]
    if rows:
        columns = ("contestant", "error", "false alarms", "golden set: seen", "false alarms there")
        print_table(f"the night of {night.day}", columns, rows)
    typer.echo(f"{night.day}: {night.outcome}: {night.because}. In service: {night.champion}")
    for note in [*(f"{name} may not win: {why}" for name, why in night.refused.items()), *night.notes]:
        typer.echo(f"  {note}")
    if night.registry:
        typer.echo(f"  registry: {night.registry}")


def _state(state: LearningState, json: bool) -> None:
    if json:
        print_json({"state": state.word, "reason": state.reason, **asdict(state)})
    else:
        typer.echo(f"{state.word}{': ' + state.reason if state.reason else ''}")
