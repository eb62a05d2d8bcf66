"""`twin train`: recordings -> a trained model in a directory."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import typer

from clustertwin.cli.app import group
from clustertwin.cli.output import Json, print_json
from clustertwin.core import files

app = group()


@app.command()
def train(
    data: list[Path] = typer.Argument(help="Directories of recordings."),
    model: str = typer.Option("linear", help="Architecture; an unknown name lists the available ones."),
    out: Path = typer.Option(..., help="Directory of the model. An interrupted run resumes from the checkpoint in it."),
    epochs: int = typer.Option(30, min=1, help="Passes over the training windows."),
    seed: int = typer.Option(0, help="Random seed; the same seed gives the same weights."),
    window_s: int = typer.Option(100, help="Window length in seconds."),
    stride_s: int = typer.Option(0, help="Seconds between the starts of two windows; 0: the window length."),
    force: bool = typer.Option(False, "--force", help="Train anew and overwrite the model and checkpoint in --out."),
    json: bool = Json,
) -> None:
    """Train an autoencoder on the normal windows of recordings."""
    from clustertwin.cli.step_progress import step_progress
    from clustertwin.telemetry.models.model_store import save
    from clustertwin.telemetry.models.training import Epoch, TrainingSettings, fit, settings_for_length
    from clustertwin.telemetry.models.training_data import normal_windows, read_windows, split_windows

    files.refuse_existing(out / "model.json", force)  # a directory with only a checkpoint is an interrupted run
    parts = split_windows(normal_windows(read_windows(data, window_s, stride_s or None)))
    settings = settings_for_length(TrainingSettings(model=model, epochs=epochs, seed=seed), window_s)
    checkpoint = out / "checkpoint"
    if force:
        (checkpoint / "run.json").unlink(missing_ok=True)
    with step_progress() as progress:

        def show(epoch: Epoch) -> None:
            progress(f"{model}: validation error {epoch.validation:.5f}", epoch.number, epochs)

        trained = fit(parts["train"], parts["validation"], settings, show, checkpoint)
    notes = {
        "command": shlex.join(["twin", *sys.argv[1:]]),
        "validation_error": trained.validation,
        "windows": {name: len(part) for name, part in parts.items()},
    }
    digest = save(out, model, trained.model, notes)
    if json:
        print_json({"out": str(out), "model": model, "sha256": digest, **notes})
    else:
        typer.echo(f"{out}: {model}, validation error {trained.validation:.5f} after {len(trained.history)} epochs")
