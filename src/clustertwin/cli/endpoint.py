"""Options of commands that connect to a server: credentials and trust. Secrets are read from files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clustertwin.core.foreign_files import read_secret

if TYPE_CHECKING:
    from clustertwin.telemetry.ingest.sources.http import Endpoint

Username = typer.Option("", "--username", help="User name for basic authentication.")
PasswordFile = typer.Option(None, "--password-file", help="File with the password.")
TokenFile = typer.Option(None, "--token-file", help="File with a bearer token.")
CaFile = typer.Option(None, "--ca-file", help="Trust this certificate authority instead of those of the system.")


def build(
    url: str, *, username: str, password_file: Path | None, token_file: Path | None, ca_file: Path | None
) -> Endpoint:
    """The endpoint with these options."""
    from clustertwin.telemetry.ingest.sources.http import Endpoint

    password, token = (read_secret(path) if path else "" for path in (password_file, token_file))
    return Endpoint(url, username, password, token, str(ca_file or ""))
