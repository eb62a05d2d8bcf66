"""`twin act`: an action that cannot be done is one sentence, and nothing is done."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.service.act.paper_slurm import PaperSlurm
from typer.testing import CliRunner

from clustertwin.cli.act import app
from clustertwin.core.errors import SourceError
from clustertwin.service.act import slurm_commands
from clustertwin.service.act.action_journal import ActionPlan, Journal
from clustertwin.service.act.slurm_commands import read_facts, run_command
from clustertwin.service.store.event_store import Store


@pytest.fixture
def slurm(monkeypatch) -> PaperSlurm:
    paper = PaperSlurm()
    monkeypatch.setattr(slurm_commands, "run_command", paper)
    return paper


def approve(home: Path, slurm: PaperSlurm, change: str) -> tuple[int, list[str]]:
    """Propose, let something happen meanwhile, and approve: the exit code and the lines."""
    store = Store(home / "state.sqlite")
    plan = ActionPlan(read_facts("42", slurm), "stopped", "Rank 3 of 8 is stopped.", 0.99, "ask", "KILL", 0.0)
    action = Journal(store.database).propose("e1", "cancel", "hung", plan, time.time())
    store.close()
    assert action is not None
    if change == "silent":
        slurm.silent = True
    else:
        slurm.state = change
    done = CliRunner().invoke(app, ["approve", action.id, "--yes", "--home", str(home)])
    return done.exit_code, done.output.splitlines()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("COMPLETED", "nothing was done: the job has ended or changed"),
        ("silent", "nothing was done: Slurm does not answer: scontrol took longer than 20 s"),
    ],
)
def test_an_action_that_cannot_be_done_is_one_sentence_and_an_exit_code(tmp_path, slurm, change, sentence):
    assert approve(tmp_path, slurm, change) == (1, [f"cancel job 42: failed, {sentence}"])
    assert slurm.calls == []


def test_an_action_that_is_done_says_so(tmp_path, slurm):
    code, lines = approve(tmp_path, slurm, "RUNNING")
    assert (code, lines[0]) == (0, "cancel job 42: done, done")
    assert slurm.calls == ["scancel 42"]


def test_a_slurm_without_a_controller_is_one_sentence(tmp_path, monkeypatch):
    command = tmp_path / "sinfo"
    command.write_text(
        "#!/bin/sh\necho 'sinfo: error: fetch_config: DNS SRV lookup failed\nsinfo: fatal: x' >&2; exit 1\n"
    )
    command.chmod(0o755)
    with pytest.raises(SourceError, match=r"^Slurm does not answer: .*sinfo does not reach slurmctld$"):
        run_command([str(command)])


def test_an_action_is_shown_and_dismissed_by_the_first_characters_of_its_id(tmp_path, slurm):
    store = Store(tmp_path / "state.sqlite")
    plan = ActionPlan(read_facts("42", slurm), "stopped", "Rank 3 of 8 is stopped.", 0.99, "ask", "KILL", 0.0)
    action = Journal(store.database).propose("e1", "cancel", "hung", plan, time.time())
    store.close()
    assert action is not None
    for command, state in (("show", "proposed"), ("approve", "proposed"), ("dismiss", "dismissed")):
        done = CliRunner().invoke(app, [command, action.id[:4], "--home", str(tmp_path)])
        assert done.output.splitlines()[0] == f"cancel job 42: {state}", done.output
    assert slurm.calls == []
