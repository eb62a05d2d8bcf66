"""`twin act`: what the policy proposed, and the decision of a person. A running service is not needed."""

from __future__ import annotations

import getpass
import os
import time
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from clustertwin.cli.app import group
from clustertwin.cli.home import Home, open_store
from clustertwin.cli.output import Json, print_json, print_table
from clustertwin.core.foreign_files import expanded

if TYPE_CHECKING:
    from clustertwin.service.act.action_journal import ActionRecord, Journal
    from clustertwin.service.act.execution import Executor

app = group("Actions on jobs: what the policy proposed, and your decision.")
Id = typer.Argument(help="The id of an action, or its first characters if they are unique.")
Config = typer.Option(None, "--config", help="The service's TOML file, if it uses slurmrestd.")


@app.command("list")
def list_(home: Path = Home, json: bool = Json) -> None:
    """List actions, newest first."""
    actions = _journal(home).actions()
    if json:
        print_json([asdict(action) for action in actions])
        return
    rows = [
        (action.id, f"{datetime.fromtimestamp(action.proposed_s):%Y-%m-%d %H:%M}", action.state, action.verb,
         action.job, action.rule, action.plan.cause, round(action.plan.promised_node_hours, 2))
        for action in actions
    ]  # fmt: skip
    columns = ("action", "since", "state", "does", "job", "rule", "cause", "promised node-h")
    print_table("", columns, rows, ("action",), instead="No actions.")


@app.command()
def show(action: str = Id, config: Path | None = Config, home: Path = Home, json: bool = Json) -> None:
    """Show an action and the commands that it would run. Nothing is done."""
    journal = _journal(home)
    _print(journal.action(journal.find(action)), _executor(home, journal, config), json)


@app.command()
def approve(
    action: str = Id,
    yes: bool = typer.Option(False, "--yes", help="Do it. Without this, only the commands are printed."),
    config: Path | None = Config,
    home: Path = Home,
    json: bool = Json,
) -> None:
    """Approve an action and do it. Without --yes nothing is done."""
    journal = _journal(home)
    record, executor = journal.action(journal.find(action)), _executor(home, journal, config)
    if yes:
        journal.approve(record.id, journal.code(record), getpass.getuser(), time.time())
        record = executor.execute(record.id)
    _print(record, executor, json)
    if record.state == "failed":
        raise typer.Exit(1)


@app.command()
def dismiss(action: str = Id, home: Path = Home, json: bool = Json) -> None:
    """Dismiss an action. Its rule is suspended until you resume it."""
    journal = _journal(home)
    record = journal.dismiss(journal.find(action), getpass.getuser(), time.time())
    _print(record, _executor(home, journal), json)


@app.command()
def resume(rule: str = typer.Argument(help="The name of a rule."), home: Path = Home, json: bool = Json) -> None:
    """Allow a suspended rule again."""
    _journal(home).resume_rule(rule, getpass.getuser(), time.time())
    if json:
        print_json({"resumed": rule})


@app.command()
def check(
    policy: Path = typer.Argument(help="A policy file."),
    slurm: bool = typer.Option(True, help="Ask Slurm whether the partitions exist."),
    json: bool = Json,
) -> None:
    """Check a policy file. Nothing is done."""
    from clustertwin.service.act.policy import check_names, read_policy
    from clustertwin.service.act.slurm_commands import partitions

    rules = read_policy(policy)
    if slurm and any(rule.partitions for rule in rules.rules):
        check_names(rules, partitions(), policy)
    if json:
        print_json([asdict(rule) for rule in rules.rules])
        return
    rows = [(rule.name, rule.mode, rule.action, ", ".join(rule.causes), rule.sure, rule.for_s) for rule in rules.rules]
    print_table("", ("rule", "mode", "action", "causes", "sure", "for s"), rows, instead=f"{policy}: no rules.")


@app.command()
def recover(config: Path | None = Config, home: Path = Home, json: bool = Json) -> None:
    """Complete or close the actions of a process that was killed."""
    done = _executor(home, _journal(home), config).recover()
    if json:
        print_json([asdict(action) for action in done])
        return
    for action in done:
        typer.echo(f"{action.id} {action.state}: {action.result}")
    if not done:
        typer.echo("No action was interrupted.")


def _journal(home: Path) -> Journal:
    from clustertwin.service.act.action_journal import Journal

    return Journal(open_store(home).database)


def _executor(home: Path, journal: Journal, config: Path | None = None) -> Executor:
    from clustertwin.service.act.execution import Executor
    from clustertwin.service.act.slurm_commands import run_command

    if config is None:
        return Executor(expanded(home), journal, run_command)
    from clustertwin.service.config import read_config

    return Executor(expanded(home), journal, read_config(config, os.environ).hand.runner())


def _print(action: ActionRecord, executor: Executor, json: bool) -> None:
    from clustertwin.service.act.policy import UNDO

    commands = executor.dry_run(action)
    if json:
        print_json({**asdict(action), "commands": commands})
        return
    typer.echo(f"{action.verb} job {action.job}: {action.state}{f', {action.result}' if action.result else ''}")
    if action.state == "failed":
        return  # the commands below it would look as if they had run
    typer.echo(action.plan.sentence)
    for command in commands:
        typer.echo(f"  {command}")
    typer.echo(UNDO[action.verb])
