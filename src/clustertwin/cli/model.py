"""`twin model`: list, show, promote and roll back stored detector versions, and synchronise them with MLflow."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clustertwin.cli.app import group
from clustertwin.cli.home import Home, existing_home
from clustertwin.cli.learn import Mlflow, registry_opener
from clustertwin.cli.output import Json, print_json, print_table

if TYPE_CHECKING:
    from clustertwin.telemetry.learning.champions.champion_store import Champion

app = group("Stored models: list, show, promote, roll back. A running service takes a change over within two seconds.")


@app.command("list")
def list_(home: Path = Home, json: bool = Json) -> None:
    """List every stored version, oldest first."""
    from clustertwin.telemetry.learning.champions.champion_store import read_champion
    from clustertwin.telemetry.learning.champions.version_store import versions

    home = existing_home(home)
    champion, stored = read_champion(home), versions(home)
    serving = champion.version if champion else ""
    if json:
        print_json([{"version": v.version, "serving": v.version == serving, **v.lineage} for v in stored])
        return
    rows = [
        (
            "→" if v.version == serving else "",
            v.version,
            v.lineage.get("night", ""),
            v.lineage.get("challenger", v.lineage.get("why", "")),
            v.lineage.get("error", ""),
            v.lineage.get("detection", {}).get("mean", ""),
        )
        for v in stored
    ]
    columns = ("", "version", "night", "from", "error", "golden-set recall")
    print_table(str(home), columns, rows, instead=f"{home}: no stored versions.")
    if champion is None:
        typer.echo("No night has run yet: the bundled model is in service.")


@app.command()
def show(
    version: str = typer.Argument(help="A version, or the beginning of its name."),
    home: Path = Home,
    json: bool = Json,
) -> None:
    """Show the lineage of a version.

    The lineage lists the data, the parents, the settings and the measurements of a version.
    """
    from clustertwin.telemetry.learning.champions.version_store import find_version

    stored = find_version(existing_home(home), version)
    print_json({"version": stored.version, "sha256": stored.sha256, **stored.lineage})


@app.command()
def promote(
    version: str = typer.Argument(help="A version, or the beginning of its name."),
    home: Path = Home,
    mlflow: str = Mlflow,
    json: bool = Json,
) -> None:
    """Put a version in service. A night that is running at the same time does not undo this."""
    from clustertwin.telemetry.learning.champions import champion_store
    from clustertwin.telemetry.learning.champions.fencing_lock import next_fence
    from clustertwin.telemetry.learning.champions.version_store import find_version

    home = existing_home(home)
    name = find_version(home, version).version
    champion = champion_store.promote(home, name, next_fence(home), "promoted by hand", time.time())
    _print_and_register(home, champion, mlflow, json)


@app.command()
def rollback(home: Path = Home, mlflow: str = Mlflow, json: bool = Json) -> None:
    """Put the previous champion back in service."""
    from clustertwin.telemetry.learning.champions import champion_store
    from clustertwin.telemetry.learning.champions.fencing_lock import next_fence

    home = existing_home(home)
    champion = champion_store.rollback(home, next_fence(home), time.time())
    _print_and_register(home, champion, mlflow, json)


@app.command()
def sync(home: Path = Home, mlflow: str = Mlflow, json: bool = Json) -> None:
    """Send waiting nights and the version in service to MLflow. Every night and every promotion ends with this."""
    from clustertwin.telemetry.learning.champions.registry_spool import open_and_sync

    home = existing_home(home)
    opener = registry_opener(home, mlflow)
    status = open_and_sync(home, opener) if opener else "turned off"
    if json:
        print_json({"registry": status})
    else:
        typer.echo(status)


def _print_and_register(home: Path, champion: Champion, mlflow: str, json: bool) -> None:
    """Print the champion, then update the registry if this home has one. The service does not wait for that."""
    from clustertwin.telemetry.learning.champions.registry_spool import open_and_sync

    if not json:
        since = datetime.fromtimestamp(champion.since_s).isoformat(" ", "seconds")
        typer.echo(f"{champion.version} is in service since {since}: {champion.why}")
    opener = registry_opener(home, mlflow or ("" if (home / "mlflow").exists() else "none"))
    status = open_and_sync(home, opener) if opener else ""
    if json:
        print_json({**asdict(champion), "registry": status})
    elif status:
        typer.echo(f"  registry: {status}")
