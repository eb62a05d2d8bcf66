"""What pulls the brake, and what a verdict that comes after its night does."""

import json
from datetime import UTC

import pytest
from tests.telemetry.learning.conftest import small_day

from clustertwin.telemetry.learning.champions import champion_store, learning_state
from clustertwin.telemetry.learning.night import learning_brake, rehearsal_memory
from clustertwin.telemetry.learning.night.calendar_day import day_of
from clustertwin.telemetry.learning.night.nightly_cycle import run
from clustertwin.telemetry.learning.night.verdicts import Told, Vetted

FIRST, SECOND = (day_of(f"2026-01-0{number}", UTC) for number in (2, 3))
NOON_S = FIRST.start_s + 43_200
AT_NOON = Vetted("n01", (0,), NOON_S, NOON_S + 600, "confirmed")


@pytest.fixture
def nights(tmp_path):
    """The first day's night, which promoted a champion and knew of no verdict."""

    def note(said=(), outcome="promoted"):
        directory = tmp_path / FIRST.name
        directory.mkdir(exist_ok=True)
        began = {"start_s": FIRST.start_s, "end_s": FIRST.end_s, "said": list(said)}
        (directory / "begin.json").write_text(json.dumps({"seconds": 0.0, "result": began}))
        (directory / "night.json").write_text(json.dumps({"outcome": outcome}))
        return tmp_path

    return note


def test_an_anomaly_of_the_day_pulls_the_brake_until_a_person_lets_go():
    day, why = learning_brake.pulled(FIRST, [AT_NOON], [], ())
    assert day == FIRST.name
    assert "confirmed on 2026-01-02: n01" in why
    assert learning_brake.pulled(FIRST, [AT_NOON], [], (FIRST.name,)) is None
    assert learning_brake.pulled(FIRST, [], [], ()) is None


def test_what_is_confirmed_after_its_night_halts_the_next_one(nights):
    (late,) = learning_brake.learned_too_soon(nights(), SECOND, Told([AT_NOON]))
    day, why = learning_brake.pulled(SECOND, [], [late], ())
    assert day == FIRST.name
    assert "after its night had learned from it: n01" in why
    assert learning_brake.pulled(SECOND, [], [late], (FIRST.name,)) is None


def test_what_its_night_knew_of_is_not_late_even_if_the_event_went_on(nights):
    knew = {"node": "n01", "start_s": NOON_S, "end_s": NOON_S + 60, "verdict": "confirmed"}
    assert learning_brake.learned_too_soon(nights([knew]), SECOND, Told([AT_NOON])) == []
    elsewhere = knew | {"node": "n02"}
    assert len(learning_brake.learned_too_soon(nights([elsewhere]), SECOND, Told([AT_NOON]))) == 1


def test_a_night_that_promoted_nobody_halts_nobody_but_its_day_is_forgotten(nights, tmp_path):
    (late,) = learning_brake.learned_too_soon(nights(outcome="kept"), SECOND, Told([AT_NOON]))
    assert learning_brake.pulled(SECOND, [], [late], ()) is None
    (tmp_path / "replay" / FIRST.name).mkdir(parents=True)
    assert "2026-01-02 is forgotten" in rehearsal_memory.forget(tmp_path / "replay", [late.day])[0]
    assert rehearsal_memory.remembered(tmp_path / "replay", SECOND.name) == []


@pytest.mark.slow
def test_the_morning_after_a_night_that_learned_an_anomaly(make_site):
    site, day = make_site(2)
    learned = run(site, day)
    assert learned.outcome == "promoted"
    said = [Vetted(small_day(2)[1][0].node, (0,), day.start_s + 600, day.start_s + 900, "confirmed")]
    site, next_day = make_site(3, said)
    assert run(site, next_day).outcome == "halted"
    assert champion_store.read_champion(site.home).version == learned.champion
    learning_state.resume(site.home)
    night = run(site, next_day)
    assert night.outcome in ("promoted", "kept")
    assert any("2026-01-02 is forgotten" in note for note in night.notes)
