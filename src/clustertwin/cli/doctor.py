"""`twin doctor`: what is installed, reachable and missing on this machine."""

from __future__ import annotations

from dataclasses import asdict

import typer

from clustertwin.cli.app import group
from clustertwin.cli.output import Json, print_json
from clustertwin.doctor import Inspected, examine

app = group()


@app.command()
def doctor(
    url: list[str] = typer.Option([], "--url", help="A server that should answer, e.g. http://127.0.0.1:9090/-/ready."),
    json: bool = Json,
) -> None:
    """Check what is installed, reachable and missing. The exit code is 1 if a required part is missing."""
    findings = examine(urls=tuple(url))
    if json:
        print_json([asdict(finding) for finding in findings])
    else:
        _show(findings)
    if any(finding.needed and not finding.ok for finding in findings):
        raise typer.Exit(1)


def _show(findings: list[Inspected]) -> None:
    subject = ""
    for finding in findings:
        if finding.subject != subject:
            subject = finding.subject
            typer.secho(subject, bold=True)
        mark = ("✓", "green") if finding.ok else ("✗", "red") if finding.needed else ("–", "yellow")
        typer.echo(f"  {typer.style(mark[0], fg=mark[1])} {finding.name:<26} {finding.detail}")
