"""`twin doctor`: what is installed, reachable and missing on this machine; whether a home is sound."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer

from clustertwin.cli.app import group
from clustertwin.cli.output import Json, print_json
from clustertwin.core.foreign_files import expanded
from clustertwin.doctor import Inspected, examine

app = group()


@app.command()
def doctor(
    url: list[str] = typer.Option([], "--url", help="A server that should answer, e.g. http://127.0.0.1:9090/-/ready."),
    home: Path | None = typer.Option(None, "--home", help="Check this home of a service instead of this machine."),
    repair: bool = typer.Option(False, "--repair", help="Repair the home. What is unusable goes to HOME/set-aside."),
    json: bool = Json,
) -> None:
    """Check what is installed, reachable and missing. The exit code is 1 if a required part is missing or damaged."""
    if home is not None or repair:
        _check_home(home, repair, json)
        return
    findings = examine(urls=tuple(url))
    if json:
        print_json([asdict(finding) for finding in findings])
    else:
        _show(findings)
    if any(finding.needed and not finding.ok for finding in findings):
        raise typer.Exit(1)


def _check_home(home: Path | None, repair: bool, json: bool) -> None:
    from clustertwin.core.errors import SettingsError

    if home is None:
        raise SettingsError("--repair needs --home")
    from clustertwin.service.store.home_check import check_home

    findings = check_home(expanded(home), repair)
    if json:
        print_json([asdict(finding) for finding in findings])
    else:
        for found in findings:
            mark = ("✗", "red") if not found.ok else ("✓", "yellow" if found.repaired else "green")
            done = f"; {found.repaired}" if found.repaired else ""
            typer.echo(f"  {typer.style(mark[0], fg=mark[1])} {found.part:<26} {found.detail}{done}")
    if any(not finding.ok for finding in findings):
        raise typer.Exit(1)


def _show(findings: list[Inspected]) -> None:
    subject = ""
    for finding in findings:
        if finding.subject != subject:
            subject = finding.subject
            typer.secho(subject, bold=True)
        mark = ("✓", "green") if finding.ok else ("✗", "red") if finding.needed else ("–", "yellow")
        typer.echo(f"  {typer.style(mark[0], fg=mark[1])} {finding.name:<26} {finding.detail}")
