"""`twin events`: list and show events, and give verdicts. A running service is not needed."""

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
from clustertwin.core.errors import SettingsError
from clustertwin.core.formatting import visible, visible_lines

if TYPE_CHECKING:
    from clustertwin.service.store.event_store import Case

app = group("Events: list and show them, and give verdicts.")

Comment = typer.Option("", "--comment", help="A comment that is stored with the verdict.")
Id = typer.Argument(help="The id of an event, or its first characters if they are unique.")
Ids = typer.Argument(help="Ids of events, or their first characters.")


@app.command("list")
def list_(
    home: Path = Home,
    open: bool | None = typer.Option(None, "--open/--closed", help="Only open or only closed events; default: both."),
    node: str = typer.Option("", help="Only events on this node."),
    job: str = typer.Option("", help="Only events of this job."),
    verdict: str | None = typer.Option(None, help="Only events with this verdict; '' selects events without one."),
    limit: int = typer.Option(50, min=1, max=10_000, help="List at most this many events."),
    json: bool = Json,
) -> None:
    """List events, newest first."""
    from clustertwin.service.store.event_store import VERDICTS, Filter

    if verdict and verdict not in VERDICTS:
        raise SettingsError(f"unknown verdict {verdict!r}; use one of {', '.join(VERDICTS)}, or '' for none")
    cases = open_store(home).events(Filter(open, verdict, node, job), limit)
    _print(cases, json)


@app.command()
def show(event: str = Id, home: Path = Home, json: bool = Json) -> None:
    """Show an event. The output has its explanation, its verdict and similar events."""
    from clustertwin.service.outgoing.score_meaning import score_meaning
    from clustertwin.service.web.api.json_values import case_json, plain

    store = open_store(home)
    case = store.event(store.find(event))
    if json:
        print_json(
            {
                **case_json(case),
                "alike": [case_json(other) for other in store.alike(case)],
                "audit": plain(store.audit(case.id)),
            }
        )
        return
    _print([case], json=False)
    typer.echo(visible(case.event.title))
    typer.echo(visible(case.why.sentence) if case.why else "There is no explanation.")
    if case.why:
        typer.echo(f"Next step: {case.why.next_step}")
    meaning = score_meaning(case.event, None)
    typer.echo(f"{meaning.name.capitalize()} {case.event.score:.1f}: {meaning.text}.")
    for ratio in case.why.ratios if case.why else ():
        typer.echo(f"  {ratio.channel:<8} measured {_share(ratio.seen)}  before {_share(ratio.before)}"
                   f"  expected {_share(ratio.expected)}  neighbours {_share(ratio.neighbours)}")  # fmt: skip
    if case.why and case.why.nearest:
        nearest = ", ".join(f"{kind} ({distance:.2f})" for kind, distance in case.why.nearest)
        typer.echo(visible(f"Nearest known job types (distance): {nearest}"))
    if case.verdict:
        by = f"{case.verdict} by {case.who or 'local user'}{f': {case.comment}' if case.comment else ''}"
        typer.echo(visible_lines(by))
    if alike := store.alike(case, 5):
        typer.echo("Similar events:")
        _print(alike, json=False)


@app.command()
def confirm(events: list[str] = Ids, comment: str = Comment, home: Path = Home, json: bool = Json) -> None:
    """Confirm that events are anomalies. Nightly learning halts until you resume it."""
    _vet(events, "confirmed", comment, home, json)


@app.command()
def dismiss(events: list[str] = Ids, comment: str = Comment, home: Path = Home, json: bool = Json) -> None:
    """Dismiss events as false alarms."""
    _vet(events, "dismissed", comment, home, json)


@app.command("new-normal")
def new_normal(events: list[str] = Ids, comment: str = Comment, home: Path = Home, json: bool = Json) -> None:
    """Mark events as the new normal. From now on models learn this behaviour."""
    _vet(events, "new-normal", comment, home, json)


@app.command()
def undo(event: str = Id, home: Path = Home, json: bool = Json) -> None:
    """Undo the last verdict of an event."""
    store = open_store(home)
    _print([store.undo(store.find(event), who=getpass.getuser(), now_s=time.time())], json)


def _vet(events: list[str], verdict: str, comment: str, home: Path, json: bool) -> None:
    store = open_store(home)
    ids = [store.find(event) for event in events]
    _print(store.vet(ids, verdict, who=getpass.getuser(), comment=comment, now_s=time.time()), json)


def _print(cases: list[Case], json: bool) -> None:
    if json:
        from clustertwin.service.web.api.json_values import case_json

        print_json([case_json(case) for case in cases])
        return
    from clustertwin.core.formatting import duration

    rows = [
        (
            case.id,
            f"{datetime.fromtimestamp(case.event.onset_s):%Y-%m-%d %H:%M}",
            "open" if case.event.end_s is None else duration(case.event.end_s - case.event.onset_s),
            case.event.title,
            ", ".join(case.event.nodes),
            case.event.owner or "-",
            round(case.event.score, 1),
            case.verdict or "-",
        )
        for case in cases
    ]
    columns = ("event", "since", "duration", "what", "nodes", "owner", "strength", "verdict")
    print_table("", columns, rows, ("event",), instead="No events.")


def _share(ratio: float | None) -> str:
    return "    –" if ratio is None else f"{100 * ratio:4.0f} %"
