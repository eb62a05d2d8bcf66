"""Which verdicts halt learning, and what a verdict does that comes after its night."""

import json
from datetime import UTC

import pytest
from tests.telemetry.learning.conftest import small_day

from clustertwin.telemetry.learning.champions import champion_store, learning_state
from clustertwin.telemetry.learning.night import rehearsal_memory
from clustertwin.telemetry.learning.night.calendar_day import day_of
from clustertwin.telemetry.learning.night.halt_rules import halt_cause, late_confirmations
from clustertwin.telemetry.learning.night.nightly_cycle import run_night
from clustertwin.telemetry.learning.night.verdicts import FixedVerdicts, VettedSpan

FIRST, SECOND = (day_of(f"2026-01-0{number}", UTC) for number in (2, 3))
NOON_S = FIRST.start_s + 43_200
AT_NOON = VettedSpan("n01", (0,), NOON_S, NOON_S + 600, "confirmed")


@pytest.fixture
def nights(tmp_path):
    """The first day's night, which promoted a challenger and knew no verdict."""

    def write(said=(), outcome="promoted"):
        directory = tmp_path / FIRST.name
        directory.mkdir(exist_ok=True)
        begun = {"start_s": FIRST.start_s, "end_s": FIRST.end_s, "said": list(said)}
        (directory / "begin.json").write_text(json.dumps({"seconds": 0.0, "result": begun}))
        (directory / "night.json").write_text(json.dumps({"outcome": outcome}))
        return tmp_path

    return write


def test_a_confirmed_anomaly_of_the_day_halts_learning_until_a_person_resumes():
    day, reason = halt_cause(FIRST, [AT_NOON], [], ())
    assert day == FIRST.name
    assert "confirmed on 2026-01-02: n01" in reason
    assert halt_cause(FIRST, [AT_NOON], [], (FIRST.name,)) is None
    assert halt_cause(FIRST, [], [], ()) is None


def test_an_anomaly_confirmed_after_its_night_halts_the_next_night(nights):
    (late,) = late_confirmations(nights(), SECOND, FixedVerdicts([AT_NOON]))
    day, reason = halt_cause(SECOND, [], [late], ())
    assert day == FIRST.name
    assert "confirmed on 2026-01-02 after that day's night had learned from it: n01" in reason
    assert halt_cause(SECOND, [], [late], (FIRST.name,)) is None


def test_a_verdict_that_the_night_knew_is_not_late_even_if_the_event_continued(nights):
    known = {"node": "n01", "start_s": NOON_S, "end_s": NOON_S + 60, "verdict": "confirmed"}
    assert late_confirmations(nights([known]), SECOND, FixedVerdicts([AT_NOON])) == []
    elsewhere = known | {"node": "n02"}
    assert len(late_confirmations(nights([elsewhere]), SECOND, FixedVerdicts([AT_NOON]))) == 1


def test_a_night_without_a_promotion_causes_no_halt_but_its_day_leaves_the_memory(nights, tmp_path):
    (late,) = late_confirmations(nights(outcome="kept"), SECOND, FixedVerdicts([AT_NOON]))
    assert halt_cause(SECOND, [], [late], ()) is None
    (tmp_path / "rehearsal" / FIRST.name).mkdir(parents=True)
    (note,) = rehearsal_memory.remove_days(tmp_path / "rehearsal", [late.day])
    assert "2026-01-02 is removed from the rehearsal memory" in note
    assert rehearsal_memory.days_before(tmp_path / "rehearsal", SECOND.name) == []


@pytest.mark.slow
def test_the_night_after_a_late_confirmation_halts_and_forgets_the_day_once_resumed(make_context):
    context, day = make_context(2)
    learned = run_night(context, day)
    assert learned.outcome == "promoted"
    verdicts = [VettedSpan(small_day(2)[1][0].node, (0,), day.start_s + 600, day.start_s + 900, "confirmed")]
    context, next_day = make_context(3, verdicts)
    assert run_night(context, next_day).outcome == "halted"
    assert champion_store.read_champion(context.home).version == learned.champion
    learning_state.resume(context.home)
    night = run_night(context, next_day)
    assert night.outcome in ("promoted", "kept")
    assert any("2026-01-02 is removed from the rehearsal memory" in note for note in night.notes)
