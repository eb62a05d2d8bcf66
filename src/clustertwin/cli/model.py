"""`twin model`: the versions there are, which one serves, and how to change that."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clustertwin.cli.app import group
from clustertwin.cli.home import Home
from clustertwin.cli.learn import Mlflow, book_of
from clustertwin.cli.output import Json, print_json, print_table

if TYPE_CHECKING:
    from clustertwin.telemetry.learning.champions.champion_store import Champion

app = group("Models: list, show, promote, rollback; the service takes a change over within a second or two.")


@app.command("list")
def list_(home: Path = Home, json: bool = Json) -> None:
    """Every version, oldest first."""
    from clustertwin.telemetry.learning.champions.champion_store import read_champion, versions

    home = home.expanduser()
    now, found = read_champion(home), versions(home)
    if json:
        serving = now.version if now else ""
        print_json([{"version": v.version, "serving": v.version == serving, **v.lineage} for v in found])
        return
    rows = [
        (
            "→" if now and v.version == now.version else "",
            v.version,
            v.lineage.get("night", ""),
            v.lineage.get("challenger", v.lineage.get("why", "")),
            v.lineage.get("error", ""),
            v.lineage.get("detection", {}).get("mean", ""),
        )
        for v in found
    ]
    print_table(str(home), ("", "version", "night", "from", "error", "golden set"), rows)
    if now is None:
        typer.echo("No night has been yet: the bundled model serves.")


@app.command()
def show(
    version: str = typer.Argument(help="A version, or its beginning."), home: Path = Home, json: bool = Json
) -> None:
    """Where a version came from: data, parents, settings, what was measured."""
    from clustertwin.telemetry.learning.champions.champion_store import find

    found = find(home.expanduser(), version)
    print_json({"version": found.version, "sha256": found.sha256, **found.lineage})


@app.command()
def promote(
    version: str = typer.Argument(help="A version, or its beginning."),
    home: Path = Home,
    mlflow: str = Mlflow,
    json: bool = Json,
) -> None:
    """Put a version in service; a night that is running does not undo it."""
    from clustertwin.telemetry.learning.champions.champion_store import find
    from clustertwin.telemetry.learning.champions.champion_store import promote as put
    from clustertwin.telemetry.learning.champions.fencing_lock import next_fence

    home = home.expanduser()
    now = put(home, find(home, version).version, next_fence(home), "promoted by hand", time.time())
    _told(home, now, mlflow, json)


@app.command()
def rollback(home: Path = Home, mlflow: str = Mlflow, json: bool = Json) -> None:
    """Put the champion before this one back in service."""
    from clustertwin.telemetry.learning.champions.champion_store import rollback as back
    from clustertwin.telemetry.learning.champions.fencing_lock import next_fence

    home = home.expanduser()
    _told(home, back(home, next_fence(home), time.time()), mlflow, json)


@app.command()
def sync(home: Path = Home, mlflow: str = Mlflow, json: bool = Json) -> None:
    """Tell MLflow who serves, and send it the nights that wait; each night ends with this, and each promotion."""
    from clustertwin.telemetry.learning.champions import registry_spool

    home = home.expanduser()
    book = book_of(home, mlflow)
    said = registry_spool.tell(home, book) if book else "turned off"
    if json:
        print_json({"registry": said})
    else:
        typer.echo(said)


def _told(home: Path, now: Champion, mlflow: str, json: bool) -> None:
    """Say who serves; then let the registry know, where this home has one. The service does not wait for that."""
    from clustertwin.telemetry.learning.champions import registry_spool

    if not json:
        since = datetime.fromtimestamp(now.since_s).isoformat(" ", "seconds")
        typer.echo(f"{now.version} serves since {since}: {now.why}")
    book = book_of(home, mlflow or ("" if (home / "mlflow").exists() else "none"))
    registry = registry_spool.tell(home, book) if book else ""
    if json:
        print_json({**asdict(now), "registry": registry})
    elif registry:
        typer.echo(f"  registry: {registry}")
