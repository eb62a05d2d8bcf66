"""`twin train`: recordings -> a trained model in a directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from clustertwin.cli.app import group
from clustertwin.cli.options import MOST_SEED, options
from clustertwin.cli.output import Json, print_json
from clustertwin.cli.recorded_command import recorded_command
from clustertwin.core import files

app = group()


@dataclass(frozen=True, kw_only=True)
class ModelTrainOptions:
    data: Annotated[list[Path], typer.Argument(help="Directories of recordings.")]
    model: Annotated[str, typer.Option(help="Architecture; an unknown name lists the available ones.")] = "linear"
    out: Annotated[
        Path, typer.Option(help="Directory of the model. An interrupted run resumes from the checkpoint in it.")
    ]
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training windows.")] = 30
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_SEED, help="Random seed; the same seed gives the same weights.")
    ] = 0
    window_s: Annotated[int, typer.Option(help="Window length in seconds.")] = 100
    stride_s: Annotated[int, typer.Option(help="Seconds between the starts of two windows; 0: the window length.")] = 0
    force: Annotated[
        bool, typer.Option("--force", help="Train again and overwrite the model and the checkpoint in --out.")
    ] = False
    json: bool = Json


@app.command()
@options(ModelTrainOptions)
def train(options: ModelTrainOptions) -> None:
    """Train an autoencoder on the normal windows of recordings."""
    from clustertwin.cli.step_progress import step_progress
    from clustertwin.telemetry.models.model_store import save
    from clustertwin.telemetry.models.training import Epoch, TrainingSettings, fit, settings_for_length
    from clustertwin.telemetry.models.training_data import normal_windows, read_windows, split_windows

    out, model, checkpoint = options.out, options.model, options.out / "checkpoint"
    files.refuse_existing(out / "model.json", options.force)  # only a checkpoint is an interrupted run
    parts = split_windows(normal_windows(read_windows(options.data, options.window_s, options.stride_s or None)))
    settings = TrainingSettings(model=model, epochs=options.epochs, seed=options.seed)
    settings = settings_for_length(settings, options.window_s)
    if options.force:
        (checkpoint / "run.json").unlink(missing_ok=True)
    with step_progress() as progress:

        def show(epoch: Epoch) -> None:
            progress(f"{model}: validation error {epoch.validation:.5f}", epoch.number, options.epochs)

        trained = fit(parts["train"], parts["validation"], settings, show, checkpoint)
    notes = {
        "command": recorded_command(),
        "validation_error": trained.validation,
        "windows": {name: len(part) for name, part in parts.items()},
    }
    digest = save(out, model, trained.model, notes)
    if options.json:
        print_json({"out": str(out), "model": model, "sha256": digest, **notes})
    else:
        typer.echo(f"{out}: {model}, validation error {trained.validation:.5f} after {len(trained.history)} epochs")
