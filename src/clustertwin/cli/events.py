"""`twin events`: list, show, confirm, dismiss, new-normal, undo; beside a running service or without one."""

from __future__ import annotations

import getpass
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clustertwin.cli.app import group
from clustertwin.cli.home import Home, open_store
from clustertwin.cli.output import Json, print_json, print_table

if TYPE_CHECKING:
    from clustertwin.service.store.event_store import Case

app = group("Events: what was strange, why, and what a person says of it.")

Comment = typer.Option("", "--comment", help="Why; it is kept with the verdict.")
Id = typer.Argument(help="An event's id, or its first letters where only one begins so.")
Ids = typer.Argument(help="Ids of events, or their first letters.")


@app.command("list")
def list_(
    home: Path = Home,
    open: bool | None = typer.Option(None, "--open/--closed", help="Only those; else all."),
    node: str = typer.Option("", help="Only events on this node."),
    job: str = typer.Option("", help="Only events of this job."),
    verdict: str | None = typer.Option(None, help="Only with this verdict; '' for those nobody has vetted."),
    limit: int = typer.Option(50, min=1, max=10_000, help="At most so many, the newest."),
    json: bool = Json,
) -> None:
    """Events, newest first."""
    from clustertwin.service.store.event_store import Filter

    cases = open_store(home).events(Filter(open, verdict, node, job), limit)
    _print(cases, json)


@app.command()
def show(event: str = Id, home: Path = Home, json: bool = Json) -> None:
    """One event: why, what was said of it, and others like it."""
    from clustertwin.service.web.api.json_values import case, plain

    store = open_store(home)
    found = store.event(store.find(event))
    if json:
        print_json(
            {**case(found), "alike": [case(one) for one in store.alike(found)], "audit": plain(store.audit(found.id))}
        )
        return
    _print([found], json=False)
    typer.echo(found.why.sentence if found.why else "No reason was kept.")
    for ratio in found.why.ratios if found.why else ():
        typer.echo(f"  {ratio.channel:<8} seen {_share(ratio.seen)}  expected {_share(ratio.expected)}"
                   f"  neighbours {_share(ratio.neighbours)}")  # fmt: skip
    if found.why and found.why.nearest:
        typer.echo("nearest known: " + ", ".join(f"{kind} ({apart:.2f})" for kind, apart in found.why.nearest))
    if found.verdict:
        typer.echo(f"{found.verdict} by {found.who or 'somebody'}{f': {found.comment}' if found.comment else ''}")
    if alike := store.alike(found, 5):
        typer.echo("Others like it:")
        _print(alike, json=False)


@app.command()
def confirm(events: list[str] = Ids, comment: str = Comment, home: Path = Home, json: bool = Json) -> None:
    """It was what it seemed: an anomaly. The nightly learning stops until somebody resumes it."""
    _vet(events, "confirmed", comment, home, json)


@app.command()
def dismiss(events: list[str] = Ids, comment: str = Comment, home: Path = Home, json: bool = Json) -> None:
    """A false alarm."""
    _vet(events, "dismissed", comment, home, json)


@app.command("new-normal")
def new_normal(events: list[str] = Ids, comment: str = Comment, home: Path = Home, json: bool = Json) -> None:
    """Strange so far, and right from now on: the next models shall learn it."""
    _vet(events, "new-normal", comment, home, json)


@app.command()
def undo(event: str = Id, home: Path = Home, json: bool = Json) -> None:
    """Take the last verdict back."""
    store = open_store(home)
    _print([store.undo(store.find(event), who=getpass.getuser(), now_s=time.time())], json)


def _vet(events: list[str], verdict: str, comment: str, home: Path, json: bool) -> None:
    store = open_store(home)
    ids = [store.find(event) for event in events]
    _print(store.vet(ids, verdict, who=getpass.getuser(), comment=comment, now_s=time.time()), json)


def _print(cases: list[Case], json: bool) -> None:
    if json:
        from clustertwin.service.web.api.json_values import case

        print_json([case(one) for one in cases])
        return
    from clustertwin.core.formatting import lasting

    rows = [
        (
            one.id,
            f"{datetime.fromtimestamp(one.event.onset_s):%Y-%m-%d %H:%M}",
            "open" if one.event.end_s is None else lasting(one.event.end_s - one.event.onset_s),
            ", ".join(one.event.nodes),
            one.event.threads,
            ", ".join(one.event.jobs) or "-",
            round(one.event.score, 1),
            one.why.channel if one.why else "-",
            one.verdict or "-",
        )
        for one in cases
    ]
    print_table(
        "", ("event", "since", "for", "nodes", "threads", "jobs", "score", "channel", "verdict"), rows, ("event",)
    )


def _share(ratio: float | None) -> str:
    return "    –" if ratio is None else f"{100 * ratio:4.0f} %"
