"""`twin token`: tokens that allow people and programs to read, vet or administer a service."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import typer

from clustertwin.cli.app import group
from clustertwin.cli.home import Home, open_store
from clustertwin.cli.output import Json, err, print_json, print_table

app = group("Tokens: they allow people and programs to read, vet or administer the service.")


@app.command()
def add(
    name: str = typer.Argument(help="Name of the owner; the audit log shows it."),
    role: str = typer.Option("read", "--role", help="Role of the token: read, vet or admin."),
    home: Path = Home,
    json: bool = Json,
) -> None:
    """Create a token and print it once; only its hash is stored. Once a token exists, every client needs one."""
    from clustertwin.service.store.tokens import Tokens

    token = Tokens(open_store(home, make=True).database).add(name, role, time.time())
    if json:
        print_json({"name": name, "role": role, "token": token})
    else:
        typer.echo(token)
        err.print("Store this token now: it is not shown again.")


@app.command("list")
def list_(home: Path = Home, json: bool = Json) -> None:
    """List the owners of tokens."""
    from clustertwin.service.store.tokens import Tokens

    holders = Tokens(open_store(home).database).all()
    if json:
        print_json([asdict(holder) for holder in holders])
    else:
        print_table("", ("name", "role"), [(holder.name, holder.role) for holder in holders])


@app.command()
def remove(name: str = typer.Argument(help="Name of the owner."), home: Path = Home, json: bool = Json) -> None:
    """Remove a token. It is invalid at once."""
    from clustertwin.service.store.tokens import Tokens

    Tokens(open_store(home).database).remove(name, time.time())
    if json:
        print_json({"removed": name})
