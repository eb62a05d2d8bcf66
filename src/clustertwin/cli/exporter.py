"""`twin exporter` for shell completion and help; `cli.main` passes real calls directly to the exporter."""

from __future__ import annotations

import typer

from clustertwin.cli.app import group

app = group()


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def exporter(context: typer.Context) -> None:
    """Serve this node's kernel metrics to Prometheus."""
    from clustertwin.telemetry.exporter.__main__ import main

    raise typer.Exit(main(context.args))
