"""`twin savings`: what actions promised and what they saved, by week, cause or account."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clustertwin.cli.app import group
from clustertwin.cli.home import Home, open_store
from clustertwin.cli.output import Json, print_json, print_table

if TYPE_CHECKING:
    from clustertwin.service.act.action_journal import ActionRecord

app = group()


@app.command()
def savings(
    by: str = typer.Option("week", help="Group by week, cause, account or rule."), home: Path = Home, json: bool = Json
) -> None:
    """Print promised and measured savings in node-hours, and false actions."""
    from clustertwin.core.errors import SettingsError
    from clustertwin.service.act.action_journal import Journal
    from clustertwin.service.act.savings import rows_by, week

    groups: dict[str, Callable[[ActionRecord], str]] = {
        "week": week,
        "cause": lambda action: action.plan.cause,
        "account": lambda action: action.plan.facts.account or "none",
        "rule": lambda action: action.rule,
    }
    if by not in groups:
        raise SettingsError(f"--by={by}: use one of {', '.join(groups)}")
    store = open_store(home)
    rows = rows_by(Journal(store.database), groups[by], store.is_settled)
    if json:
        print_json([asdict(row) for row in rows])
        return
    print_table(
        "node-hours",
        (by, "actions", "done", "false", "promised", "measured", "in the interval"),
        [
            (row.group, row.actions, row.done, row.false, round(row.promised_node_hours, 3),
             round(row.measured_node_hours, 3), f"{row.within} of {row.measured}")
            for row in rows
        ],
        instead="No actions, so nothing is saved yet.",
    )  # fmt: skip
