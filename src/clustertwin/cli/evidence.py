"""`twin evidence`: what a job's processes wait for. `cli.main` passes take and serve directly to the helper."""

from __future__ import annotations

import typer

from clustertwin.cli.app import group

app = group("Evidence: what the processes of a job wait for, and which rank differs from the others.")
_PASSED = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command(context_settings=_PASSED)
def take(context: typer.Context) -> None:
    """Take the evidence of a job on this node now."""
    _run(["take", *context.args])


@app.command(context_settings=_PASSED)
def serve(context: typer.Context) -> None:
    """Serve the evidence of jobs on this node to the twin. This is the helper of a node."""
    _run(["serve", *context.args])


def _run(arguments: list[str]) -> None:
    from clustertwin.telemetry.diagnosis.__main__ import main

    raise typer.Exit(main(arguments))
