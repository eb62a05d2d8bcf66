"""`twin study`: recordings, or a simulated cluster -> tables, figures and one report."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from clustertwin.cli.app import group
from clustertwin.cli.options import MOST_SEED, options
from clustertwin.cli.output import Json, print_json, print_table
from clustertwin.cli.recorded_command import recorded_command

app = group()


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    what: Annotated[
        list[str], typer.Argument(help="Parts of the study (default: all), and directories of recorded campaigns.")
    ] = field(default_factory=list)
    out: Annotated[Path, typer.Option(help="Directory for report.html, study.json and the trained models.")]
    preset: Annotated[
        str, typer.Option(help="reference: 10 models of each recipe; quick: 2 models on a small cluster.")
    ] = ""
    ensemble: Annotated[int, typer.Option(min=0, help="Models of each recipe; 0: as in the preset.")] = 0
    models: Annotated[
        str, typer.Option(help="Recipes, separated by semicolons. An unknown name lists the available ones.")
    ] = ""
    epochs: Annotated[int, typer.Option(min=0, help="Passes over the training windows; 0: as in each recipe.")] = 0
    learn: Annotated[str, typer.Option(help="Training data if recordings are given: recordings or simulated.")] = (
        "recordings"
    )
    window_s: Annotated[int, typer.Option(help="Window length in seconds, if recordings are given.")] = 100
    stride_s: Annotated[int, typer.Option(min=0, help="Seconds between windows; 0: the window length.")] = 0
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Random seed of the simulated cluster.")] = 1
    engine: Annotated[str, typer.Option(help="here, or ray for the cluster at RAY_ADDRESS.")] = "here"
    workers: Annotated[int, typer.Option(min=0, help="Worker processes; 0: one per CPU.")] = 0
    umap: Annotated[bool, typer.Option(help="Plot embeddings with UMAP instead of PCA.")] = False
    json: bool = Json


@app.command()
@options(StudyOptions)
def study(options: StudyOptions) -> None:
    """Run the reference study or its parts: sampling, reconstruction, detection, separability, graph, uncertainty."""
    from clustertwin.cli.step_progress import step_progress
    from clustertwin.telemetry.studies.reference.presets import StudyRequest, resolve
    from clustertwin.telemetry.studies.reference.study_report import write_report
    from clustertwin.telemetry.studies.reference.study_run import run_study

    source, plan = resolve(StudyRequest(**{each.name: getattr(options, each.name) for each in fields(StudyRequest)}))
    began_s = time.monotonic()
    with step_progress() as show:
        sections = run_study(source, plan, show, cache=options.out / "models")
    facts: dict[str, Any] = {
        "command": recorded_command(),
        "data": source.name,
        "minutes": round((time.monotonic() - began_s) / 60, 1),
        "CPU minutes": round(sum(os.times()[:4]) / 60, 1),  # of this process and its finished children
    }
    document = write_report(options.out, facts, sections)
    if options.json:
        print_json(document)
        return
    for section in sections:
        typer.echo(f"\n{section.title}. {section.text}")
        for table in section.tables:
            print_table(table.title, table.columns, table.rows)
    typer.echo(f"\n{options.out / 'report.html'}")
