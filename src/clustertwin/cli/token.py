"""`twin token`: tokens that allow people and programs to read, vet or administer a service."""

from __future__ import annotations

import getpass
import time
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import typer

from clustertwin.cli.app import group
from clustertwin.cli.home import Home, open_store
from clustertwin.cli.output import Json, err, print_json, print_table

app = group("Tokens: they allow people and programs to read, vet or administer the service.")


@app.command()
def add(
    name: str = typer.Argument(help="Name of the owner; the audit log shows it."),
    role: str = typer.Option("read", "--role", help="Role of the token: read, vet, admin, or push for remote write."),
    lasts: str = typer.Option("", "--for", help="Duration, such as 12h or 90d; without it, the token does not expire."),
    from_file: Path | None = typer.Option(
        None, "--from", help="Store the token in this file, which another service made, instead of a new one."
    ),
    home: Path = Home,
    json: bool = Json,
) -> None:
    """Create a token and print it once; only its hash is stored. Once a token has existed, every client needs one."""
    from clustertwin.core.durations import parse_duration
    from clustertwin.core.foreign_files import read_secret
    from clustertwin.service.store.tokens import Tokens

    now_s, lasts_s = time.time(), parse_duration(lasts) if lasts else None
    existing = read_secret(from_file) if from_file else ""
    tokens = Tokens(open_store(home, make=True).database)
    token = tokens.add(name, role, now_s, lasts_s=lasts_s, who=getpass.getuser(), token=existing)
    if existing:
        token = ""  # its owner has it
    if json:
        expires_s = None if lasts_s is None else now_s + lasts_s
        print_json({"name": name, "role": role, "token": token, "expires_s": expires_s})
    elif not existing:
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
        rows = [(holder.name, holder.role, _expiry(holder.expires_s, time.time())) for holder in holders]
        print_table("", ("name", "role", "expires"), rows, instead="No tokens.")


@app.command()
def remove(name: str = typer.Argument(help="Name of the owner."), home: Path = Home, json: bool = Json) -> None:
    """Remove a token and end its sessions and streams. After the last one, clients still need a token: see reopen."""
    from clustertwin.service.store.tokens import Tokens

    tokens = Tokens(open_store(home).database)
    tokens.remove(name, time.time(), getpass.getuser())
    if json:
        print_json({"removed": name})
    elif not tokens.all():
        err.print("No token is left: nobody can log in until you run `twin token add` or `twin token reopen`.")


@app.command()
def reopen(home: Path = Home, json: bool = Json) -> None:
    """Need no token on loopback again, as before the first token. Remove all tokens first."""
    from clustertwin.service.store.tokens import Tokens

    Tokens(open_store(home).database).reopen(time.time(), getpass.getuser())
    if json:
        print_json({"reopened": True})
    else:
        typer.echo("Clients on loopback need no token.")


def _expiry(expires_s: float | None, now_s: float) -> str:
    if expires_s is None:
        return "never"
    return f"{datetime.fromtimestamp(expires_s):%Y-%m-%d %H:%M}{' (expired)' * (expires_s <= now_s)}"
