"""A home of an older format is migrated, one of a newer format is refused by every command, and a crash does no harm.

home_0_1_0 has the files of a home that release 0.1.0 made, before there was a format.json. state.sql is the dump of its
state.sqlite.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from inspect import signature
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clustertwin.cli import COMMANDS
from clustertwin.cli.home import open_store
from clustertwin.core.errors import InputError, OutputError, SettingsError
from clustertwin.core.extras import load
from clustertwin.service.config import ServiceConfig, ServiceSection
from clustertwin.service.serving import run
from clustertwin.service.store.home_format import MIGRATIONS, HomeFormatError, create_home, open_home
from clustertwin.telemetry.learning.champions.champion_store import read_champion
from clustertwin.telemetry.learning.champions.learning_state import read_state
from clustertwin.telemetry.learning.night.rehearsal_memory import days_before

OLD = Path(__file__).with_name("home_0_1_0")
#: One command of each group that has a --home option.
WITH_HOME = {
    "doctor": [],
    "events": ["list"],
    "maintenance": ["list"],
    "silence": ["list"],
    "audit": [],
    "act": ["list"],
    "savings": [],
    "evidence": ["show", "e1"],
    "job": ["17"],
    "token": ["list"],
    "backup": [],
    "digest": [],
    "model": ["list"],
    "learn": ["resume"],
    "up": ["--no-browser"],
}


@pytest.fixture
def old_home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    shutil.copytree(OLD, home)
    with sqlite3.connect(home / "state.sqlite") as database:
        database.executescript((home / "state.sql").read_text())
    (home / "state.sql").unlink()
    return home


@pytest.fixture
def newer_home(tmp_path: Path) -> Path:
    (tmp_path / "format.json").write_text('{"format": 99, "written_by": "clustertwin 9.0"}')
    return tmp_path


def stamp(home: Path) -> int:
    return json.loads((home / "format.json").read_text())["format"]


def test_a_home_of_release_0_1_0_opens_by_itself(old_home):
    answer = CliRunner().invoke(load(COMMANDS["events"][0]), ["show", "e1", "--json", "--home", str(old_home)])
    event = json.loads(answer.output)
    assert (event["verdict"], event["comment"], event["why"]["channel"]) == ("confirmed", "disk 3", "iowait")
    assert event["title"].startswith("Job 17 is unusual: iowait ")
    assert (event["cause"], event["question"]) == ("", "")
    store = open_store(old_home)
    assert [window.nodes for window in store.quiet_periods.maintenance(20_000.0)] == [("n0*",)]
    assert [silence.job for silence in store.quiet_periods.silences(20_000.0)] == ["17"]
    assert [entry.action for entry in store.audit()] == ["silence", "maintenance", "vet"]
    assert read_champion(old_home).why == "promoted by hand"
    assert read_state(old_home).frozen == "tests"
    assert stamp(old_home) == len(MIGRATIONS)


def test_a_new_home_has_the_current_format(tmp_path):
    open_store(tmp_path / "home", make=True).close()
    assert stamp(tmp_path / "home") == len(MIGRATIONS)


def test_the_rehearsal_memory_of_format_1_leaves_the_directory_of_replays(tmp_path):
    replay, days = tmp_path / "replay", ["2026-11-14", "2026-11-15"]
    for day in days:
        (replay / day).mkdir(parents=True)
        for role in ("train", "held_out"):
            (replay / day / f"{role}.safetensors").write_text(day)
    (replay / "state.sqlite").write_text("a replay")
    (tmp_path / "format.json").write_text('{"format": 1}')
    open_home(tmp_path)
    memory = tmp_path / "rehearsal"
    assert [path.name for path in days_before(memory, "2026-11-16")] == days
    assert (memory / days[0] / "held_out.safetensors").read_text() == days[0]
    assert [path.name for path in replay.iterdir()] == ["state.sqlite"]


def test_a_home_that_does_not_exist_is_not_created(tmp_path):
    assert not open_home(tmp_path / "home").exists()


def test_a_new_home_needs_no_migration(tmp_path):
    day = tmp_path / "replay" / "2026-11-14" / "train.safetensors"
    day.parent.mkdir(parents=True)
    day.touch()
    create_home(tmp_path)
    assert stamp(tmp_path) == len(MIGRATIONS)
    assert day.exists()


@pytest.mark.parametrize("command", ["audit", "digest", "learn", "model"])
def test_a_directory_that_is_no_home_stays_as_it_is(tmp_path, twin_here, command):
    """A mistake in --home wrote format.json there, and moved what looked like an older rehearsal memory."""
    mine = tmp_path / "mine"
    day = mine / "replay" / "2026-11-14" / "train.safetensors"
    day.parent.mkdir(parents=True)
    day.write_text("mine")
    assert twin_here(*WITH_HOME[command], "--home", mine).returncode != 0
    assert [path for path in mine.rglob("*") if path.is_file()] == [day]


def test_migrations_run_in_order_and_once(old_home):
    steps: list[int] = []
    migrations = tuple(lambda home, step=step: steps.append(step) for step in range(3))
    open_home(old_home, migrations[:2])
    open_home(old_home, migrations)
    open_home(old_home, migrations)
    assert steps == [0, 1, 2]
    assert stamp(old_home) == 3


def test_a_migration_that_crashes_runs_again(old_home):
    attempts = []

    def crash_once(home: Path) -> None:
        attempts.append(home)
        if len(attempts) == 1:
            raise OutputError("disk full")

    with pytest.raises(OutputError):
        open_home(old_home, (MIGRATIONS[0], crash_once))
    assert stamp(old_home) == 1
    open_home(old_home, (MIGRATIONS[0], crash_once))
    assert (len(attempts), stamp(old_home)) == (2, 2)


def test_a_damaged_format_file_is_an_error_that_says_what_to_do(tmp_path):
    (tmp_path / "format.json").write_text("{")
    with pytest.raises(InputError, match="does not contain a format; delete it"):
        open_home(tmp_path)


def test_every_command_with_a_home_is_listed_here():
    def has_home(name: str) -> bool:
        commands = load(COMMANDS[name][0]).registered_commands
        parameters = [
            parameter for command in commands for parameter in signature(command.callback).parameters.values()
        ]
        return any("--home" in (getattr(parameter.default, "param_decls", None) or ()) for parameter in parameters)

    assert {name for name in COMMANDS if has_home(name)} == set(WITH_HOME)


@pytest.mark.parametrize("name", WITH_HOME)
def test_every_command_refuses_a_home_of_a_newer_format(newer_home, name):
    answer = CliRunner().invoke(load(COMMANDS[name][0]), [*WITH_HOME[name], "--home", str(newer_home)])
    assert isinstance(answer.exception, HomeFormatError)
    assert answer.exception.exit_code == SettingsError.exit_code == 2
    assert "clustertwin 9.0 wrote this with format 99" in str(answer.exception)


def test_the_service_refuses_a_home_of_a_newer_format(newer_home):
    with pytest.raises(HomeFormatError, match="Upgrade clustertwin, or choose another home"):
        run(ServiceConfig(service=ServiceSection(home=str(newer_home))))


def test_a_migrated_schema_is_the_schema_of_a_new_home(old_home, tmp_path):
    def schema(home: Path) -> tuple[int, list[tuple[str]]]:
        with sqlite3.connect(home / "state.sqlite") as database:
            version = database.execute("PRAGMA user_version").fetchone()[0]
            return version, sorted(database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"))

    open_store(tmp_path / "new", make=True).close()
    assert schema(old_home)[0] == 1
    open_store(old_home).close()
    assert schema(tmp_path / "new") == schema(old_home)


def test_a_database_of_a_newer_schema_is_refused_in_the_same_way(tmp_path):
    create_home(tmp_path)
    with sqlite3.connect(tmp_path / "state.sqlite") as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(HomeFormatError, match="a newer release wrote this with format 99"):
        open_store(tmp_path)


def test_a_home_that_everyone_can_write_to_is_refused(tmp_path):
    """Another local user could replace the champion, or the database by a link to another file."""
    home = tmp_path / "shared"
    home.mkdir()
    home.chmod(0o777)
    with pytest.raises(SettingsError, match="every user of this machine can write to it"):
        create_home(home)
    home.chmod(0o770)  # a group of administrators
    assert create_home(home) == home
