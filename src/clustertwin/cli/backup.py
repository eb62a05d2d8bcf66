"""`twin backup` and `twin restore`: a home in one file, and back."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import typer

from clustertwin.cli.app import group
from clustertwin.cli.home import Home
from clustertwin.cli.output import Json, print_json
from clustertwin.core.errors import SettingsError
from clustertwin.core.foreign_files import expanded
from clustertwin.core.formatting import visible

backup_app, restore_app = group(), group()


@backup_app.command()
def backup(
    out: Path | None = typer.Argument(
        None, help="The file to write; without it, clustertwin-DATE.tar in this directory."
    ),
    recording: bool = typer.Option(True, help="Include the recording, which is by far the largest part."),
    home: Path = Home,
    json: bool = Json,
) -> None:
    """Back up a home, also while its service runs. The file holds hashes of tokens: keep it private."""
    from clustertwin.service.store.backup import back_up

    target = out or Path(time.strftime("clustertwin-%Y%m%d-%H%M%S.tar"))
    summary = back_up(expanded(home), target, recording=recording)
    if json:
        print_json(asdict(summary))
    else:
        typer.echo(f"{summary.path}: {summary.files} files, {summary.bytes / 1e6:.1f} MB")
        for name in summary.left_out:
            typer.echo(
                f"  {visible(name)} is not in it: it disappeared, or is a link that cannot be followed", err=True
            )


@restore_app.command()
def restore(
    source: Path = typer.Argument(help="A file that `twin backup` wrote."),
    target: Path | None = typer.Argument(None, metavar="HOME", help="The home to create: absent, or empty."),
    check: bool = typer.Option(False, "--check", help="Only check that the backup is complete and unchanged."),
    json: bool = Json,
) -> None:
    """Create a home from a backup. Every file is checked before the home appears."""
    from clustertwin.service.store import backup as backups

    if (target is None) != check:
        raise SettingsError("name the home to create, or use --check without one")
    summary = backups.check(source) if target is None else backups.restore(source, expanded(target))
    if json:
        print_json(asdict(summary))
    else:
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.made_s))
        verb = "is complete" if check else f"restored to {target}"
        typer.echo(f"{source} {verb}: {summary.files} files, {summary.bytes / 1e6:.1f} MB, made {made}")
