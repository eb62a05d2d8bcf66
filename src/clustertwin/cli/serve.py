"""`twin serve`: the same service for a cluster, from a configuration."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from clustertwin.cli.app import group
from clustertwin.cli.output import Json

app = group()


@app.command()
def serve(
    config: Path | None = typer.Option(None, "--config", help="A TOML file; see docs/service.md."),
    engine: str = typer.Option("", "--engine", help="here, or ray: score on Ray actors."),
    check: bool = typer.Option(False, "--check", help="Only read the configuration and say what it comes to."),
    json: bool = Json,
) -> None:
    """Watch many nodes through Prometheus or their exporters."""
    from clustertwin.cli.output import print_json
    from clustertwin.cli.up import one_core, tell
    from clustertwin.config import read_config

    environment = {**os.environ, **({"CLUSTERTWIN_SCORING__ENGINE": engine} if engine else {})}
    settings = read_config(config, environment)
    if check:
        print_json(settings.model_dump())
        return
    one_core()
    from clustertwin.service.serving import run

    run(settings, None, lambda binding: tell(binding, settings.home, json))
