"""Tokens: they expire, their sessions end with them, and the door stays closed after the last one."""

from __future__ import annotations

import json
import sqlite3
import time

import pytest
from click.testing import Result
from typer.testing import CliRunner

from clustertwin.cli import COMMANDS
from clustertwin.core.errors import SettingsError
from clustertwin.core.extras import load
from clustertwin.service.store import tokens as tokens_module
from clustertwin.service.store.database import _SCHEMA_1, Database
from clustertwin.service.store.event_store import Store
from clustertwin.service.store.tokens import SESSION_S, Tokens

DAY_S = 86_400.0


@pytest.fixture
def tokens(tmp_path, clock):
    store = Store(tmp_path / "state.sqlite")
    yield Tokens(store.database, clock)
    store.close()


def test_a_token_expires_and_one_without_an_end_does_not(tokens, clock):
    short = tokens.add("ada", "read", 0.0, lasts_s=90 * DAY_S)
    long = tokens.add("bob", "admin", 0.0)
    session = tokens.start_session(short)
    clock.now_s = 20 * DAY_S
    assert (tokens.holder(short).name, tokens.session_holder(session).name) == ("ada", "ada")
    clock.now_s = 91 * DAY_S
    assert tokens.holder(short) is None
    assert tokens.start_session(short) is None
    assert tokens.holder(long).role == "admin"
    assert [holder.name for holder in tokens.valid()] == ["bob"]
    assert [holder.name for holder in tokens.all()] == ["ada", "bob"]


def test_a_session_does_not_outlive_its_token_or_its_time(tokens, clock):
    short = tokens.add("ada", "read", 0.0, lasts_s=DAY_S)
    ended = tokens.start_session(short)
    late = tokens.start_session(tokens.add("bob", "read", 0.0))
    clock.now_s = DAY_S + 1
    assert tokens.session_holder(ended) is None
    assert tokens.session_holder(late) is not None
    clock.now_s = SESSION_S + 1
    assert tokens.session_holder(late) is None


def test_the_sessions_of_a_token_are_bounded(tokens, clock, monkeypatch):
    monkeypatch.setattr(tokens_module, "MOST_SESSIONS", 3)
    token, sessions = tokens.add("ada", "read", 0.0), []
    for clock.now_s in range(5):
        sessions.append(tokens.start_session(token))
    assert [tokens.session_holder(session) is not None for session in sessions] == [False, False, True, True, True]


def test_after_the_last_token_a_token_is_still_needed_until_someone_reopens(tokens):
    assert not tokens.needed()
    tokens.add("ada", "admin", 0.0)
    with pytest.raises(SettingsError, match="remove all of them first"):
        tokens.reopen(1.0)
    tokens.remove("ada", 2.0)
    assert tokens.needed()
    tokens.reopen(3.0, "root")
    assert not tokens.needed()


@pytest.mark.parametrize(("tokens_added", "needed"), [(0, False), (1, True)])
def test_an_old_database_that_had_a_token_still_needs_one(tmp_path, tokens_added, needed):
    with sqlite3.connect(tmp_path / "state.sqlite") as old:
        old.executescript(_SCHEMA_1 + "PRAGMA user_version = 1;")
        for _ in range(tokens_added):
            old.execute("INSERT INTO audit VALUES (NULL, 1, '', 'token added', 'ada', '{}', '{}')")
            old.execute("INSERT INTO audit VALUES (NULL, 2, '', 'token removed', 'ada', '{}', '{}')")
    database = Database(tmp_path / "state.sqlite")
    assert Tokens(database).needed() is needed
    database.close()


@pytest.mark.parametrize("value", ["", "x" * 1_000_000, "\ud800"])
def test_a_strange_token_is_not_valid(tokens, value):
    assert tokens.holder(value) is None
    assert tokens.session_holder(value) is None
    tokens.end_session(value)


def test_tokens_from_the_shell_expire_and_the_door_is_reopened(tmp_path, clock):
    def twin(*words: str) -> Result:
        return CliRunner().invoke(load(COMMANDS["token"][0]), [*words, "--home", str(tmp_path), "--json"])

    added = json.loads(twin("add", "ada", "--for", "90d").stdout)
    assert added["expires_s"] == pytest.approx(time.time() + 90 * DAY_S, abs=60)
    (listed,) = json.loads(twin("list").stdout)
    assert (listed["name"], listed["expires_s"]) == ("ada", added["expires_s"])
    assert isinstance(twin("add", "bob", "--for", "soon").exception, SettingsError)
    assert isinstance(twin("reopen").exception, SettingsError)
    assert json.loads(twin("remove", "ada").stdout) == {"removed": "ada"}
    store = Store(tmp_path / "state.sqlite")
    assert Tokens(store.database, clock).needed()
    assert json.loads(twin("reopen").stdout) == {"reopened": True}
    assert not Tokens(store.database, clock).needed()
    assert [entry.action for entry in store.audit()] == ["loopback opened", "token removed", "token added"]
    assert all(entry.who for entry in store.audit())
    store.close()
