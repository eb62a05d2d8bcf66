"""Options of commands that connect to a server: credentials and trust. Secrets are read from files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import typer

from clustertwin.core.foreign_files import read_secret

if TYPE_CHECKING:
    from clustertwin.telemetry.ingest.sources.http import Endpoint

Username = typer.Option("", "--username", help="User name for basic authentication.")
PasswordFile = typer.Option(None, "--password-file", help="File with the password.")
TokenFile = typer.Option(None, "--token-file", help="File with a bearer token.")
CaFile = typer.Option(None, "--ca-file", help="Trust this certificate authority instead of those of the system.")


class Credentials(Protocol):
    """The options of a command that has all of the above."""

    @property
    def username(self) -> str: ...

    @property
    def password_file(self) -> Path | None: ...

    @property
    def token_file(self) -> Path | None: ...

    @property
    def ca_file(self) -> Path | None: ...


def build(url: str, options: Credentials) -> Endpoint:
    """The endpoint with these options."""
    from clustertwin.telemetry.ingest.sources.http import Endpoint

    password, token = (read_secret(path) if path else "" for path in (options.password_file, options.token_file))
    return Endpoint(url, options.username, password, token, str(options.ca_file or ""))
