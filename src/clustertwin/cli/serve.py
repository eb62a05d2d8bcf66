"""`twin serve`: watch a cluster, as a configuration file describes it."""

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
    engine: str = typer.Option("", "--engine", help="Where to score: here, or ray for Ray actors."),
    check: bool = typer.Option(False, "--check", help="Read the configuration, print all settings, and exit."),
    json: bool = Json,
) -> None:
    """Watch many nodes through Prometheus or their exporters."""
    from clustertwin.cli.output import print_json
    from clustertwin.cli.up import one_core, print_address
    from clustertwin.core.extras import require

    one_core()
    require("pydantic", "service")
    from clustertwin.service.config import read_config

    environment = {**os.environ, **({"CLUSTERTWIN_SCORING__ENGINE": engine} if engine else {})}
    settings = read_config(config, environment)
    settings.check_nights()
    if check:
        from clustertwin.service.web.binding import check_binding

        check_binding(settings.service.settings())
        print_json(settings.model_dump())
        return
    from clustertwin.service.serving import run

    source = settings.source
    watched = (
        "this machine only, because no [source] is set" if source.kind == "host" else f"nodes through {source.kind}"
    )
    run(settings, None, lambda binding: print_address(binding, settings.home, json, watched))
