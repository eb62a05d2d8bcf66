"""`twin study`: recordings, or a simulated cluster -> tables, figures and one report."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import typer

from clustertwin.cli.app import group
from clustertwin.cli.output import Json, err, print_json, print_table

app = group()


@app.command()
def study(
    what: list[str] = typer.Argument(None, help="Parts (all unless named), then directories of recorded campaigns."),
    out: Path = typer.Option(..., help="Directory of report.html, study.json and the trained models."),
    preset: str = typer.Option("", help="reference: ensembles of 10; quick: 2 short ones on a small cluster."),
    ensemble: int = typer.Option(0, min=0, help="Models of each architecture; 0: as the preset says."),
    models: str = typer.Option("", help="Recipes, separated by semicolons; a wrong name lists them."),
    epochs: int = typer.Option(0, min=0, help="Passes over the training windows; 0: as each recipe says."),
    learn: str = typer.Option("recordings", help="What models learn from, where recordings are given; or simulated."),
    window_s: int = typer.Option(100, help="Length of a window, where recordings are given."),
    stride_s: int = typer.Option(0, min=0, help="Seconds from one window to the next; 0: side by side."),
    seed: int = typer.Option(1, help="Of the simulated cluster."),
    engine: str = typer.Option("here", help="here or ray (RAY_ADDRESS)."),
    workers: int = typer.Option(0, min=0, help="Processes; 0: one for each CPU."),
    umap: bool = typer.Option(False, help="UMAP and not PCA for the scatter of embeddings."),
    json: bool = Json,
) -> None:
    """Reproduce the reference study, part by part: sampling, reconstruction, detection, separability, graph."""
    from rich.progress import Progress, SpinnerColumn

    from clustertwin.telemetry.studies.reference.presets import plan_of
    from clustertwin.telemetry.studies.reference.study_report import write
    from clustertwin.telemetry.studies.reference.study_run import run

    source, plan = plan_of(
        what or [], preset=preset, ensemble=ensemble, models=models, epochs=epochs, learn=learn, window_s=window_s,
        stride_s=stride_s, seed=seed, engine=engine, workers=workers, umap=umap,
    )  # fmt: skip
    began_s = time.monotonic()
    with Progress(SpinnerColumn(), *Progress.get_default_columns(), console=err, transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def show(step: str, done: int, total: int) -> None:
            bar.update(task, description=step, completed=done, total=total or None)

        sections = run(source, plan, show, keep=out / "models")
    facts: dict[str, Any] = {
        "command": shlex.join(["twin", *(Path(word).name or word for word in sys.argv[1:])]),
        "data": source.name,
        "minutes": round((time.monotonic() - began_s) / 60, 1),
        "CPU minutes": round(sum(os.times()[:4]) / 60, 1),  # of this process and of those it has waited for
    }
    document = write(out, facts, sections)
    if json:
        print_json(document)
        return
    for section in sections:
        typer.echo(f"\n{section.title}. {section.text}")
        for table in section.tables:
            print_table(table.title, table.columns, table.rows)
    typer.echo(f"\n{out / 'report.html'}")
