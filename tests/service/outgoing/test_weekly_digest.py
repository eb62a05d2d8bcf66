"""The weekly digest: known answers, and the command."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest
from tests.service.sample_state import EVENT, WHY

from clustertwin.service.outgoing import notifications
from clustertwin.service.outgoing.weekly_digest import digest, text, wilson
from clustertwin.service.store.event_store import Store

DAY_S = 86_400


@pytest.fixture
def store(tmp_path):
    """Ten events in the week before day 14, two in the week before that."""
    store = Store(tmp_path / "state.sqlite")
    for i in range(12):
        onset_s = (7 if i < 10 else 0) * DAY_S + 3600 * i
        event = replace(EVENT, id=f"e{i}", onset_s=onset_s, seen_s=onset_s, end_s=onset_s + 60, score=float(i))
        store.write([(event, WHY)])
    store.vet(["e0", "e1", "e2"], "confirmed", who="ada", now_s=0)
    store.vet(["e3"], "dismissed", who="ada", now_s=0)
    store.vet(["e10"], "dismissed", who="ada", now_s=0)
    yield store
    store.close()


def test_events_and_false_alarms_are_counted(store):
    report = digest(store, 7 * DAY_S, 14 * DAY_S)
    assert (report.events, report.before, report.still_open) == (10, 2, 0)
    assert report.verdicts == {"confirmed": 3, "dismissed": 1, "new-normal": 0, "none": 6}
    assert report.false_alarms == 0.25
    assert report.unvetted == ("e9", "e8", "e7", "e6", "e5")
    assert report.channels == {"iowait": 10}
    assert "25 % of 4 events with a verdict" in text(report)[1]


def test_the_title_says_how_long_the_period_is(store):
    """Half a day was 0 days."""
    assert text(digest(store, 7 * DAY_S, 7.5 * DAY_S))[0] == "clustertwin: 10 events in 0.5 days"
    assert text(digest(store, 7 * DAY_S, 14 * DAY_S))[0] == "clustertwin: 10 events in 7 days"


def test_without_verdicts_the_rate_is_unknown_not_zero(store):
    report = digest(store, 100 * DAY_S, 107 * DAY_S)
    assert report.false_alarms is None
    assert "unknown" in text(report)[1]


def test_the_interval_of_wilson():
    """Values as in Newcombe (1998), table I: 81 of 263 and 0 of 20."""
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


def test_the_command_prints_one_document(twin_here, tmp_path):
    home = tmp_path / "home"
    Store(home / "state.sqlite").write([(replace(EVENT, onset_s=int(time.time()) - 60), WHY)])
    done = twin_here("digest", "--home", str(home), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["events"] == 1


def test_a_home_without_a_service_is_refused(twin_here, tmp_path):
    done = twin_here("digest", "--home", str(tmp_path))
    assert done.returncode == 2
    assert "no service has run" in done.stderr
    assert not (tmp_path / "state.sqlite").exists()


def test_addresses_with_passwords_come_from_the_environment(twin_here, tmp_path, monkeypatch):
    """Every local user can read the arguments of a process."""
    sent = []
    monkeypatch.setattr(notifications, "deliver_now", lambda urls, title, body: sent.extend(urls))
    monkeypatch.setenv("CLUSTERTWIN_DIGEST_SEND", "mailto://a json://b")
    Store(tmp_path / "state.sqlite").close()
    assert twin_here("digest", "--home", tmp_path).returncode == 0
    assert sent == ["mailto://a", "json://b"]
