"""`twin token`: who may read, vet or administer a service."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import typer

from clustertwin.cli.app import group
from clustertwin.cli.home import Home, open_store
from clustertwin.cli.output import Json, err, print_json, print_table

app = group("Tokens: who may read, vet or administer the service.")


@app.command()
def add(
    name: str = typer.Argument(help="Whose it is; it stands beside what they do."),
    role: str = typer.Option("read", "--role", help="read, vet or admin."),
    home: Path = Home,
    json: bool = Json,
) -> None:
    """Make a token and print it, this once; only its hash is kept. From the first one on, everybody needs one."""
    from clustertwin.service.store.tokens import Tokens

    token = Tokens(open_store(home, make=True).database).add(name, role, time.time())
    if json:
        print_json({"name": name, "role": role, "token": token})
    else:
        typer.echo(token)
        err.print("It is not shown again.")


@app.command("list")
def list_(home: Path = Home, json: bool = Json) -> None:
    """Who has a token."""
    from clustertwin.service.store.tokens import Tokens

    holders = Tokens(open_store(home).database).all()
    if json:
        print_json([asdict(holder) for holder in holders])
    else:
        print_table("", ("name", "role"), [(holder.name, holder.role) for holder in holders])


@app.command()
def remove(name: str = typer.Argument(help="Whose."), home: Path = Home, json: bool = Json) -> None:
    """Take a token away, at once."""
    from clustertwin.service.store.tokens import Tokens

    Tokens(open_store(home).database).remove(name, time.time())
    if json:
        print_json({"removed": name})
