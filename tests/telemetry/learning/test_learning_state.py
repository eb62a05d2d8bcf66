"""Freeze, halt and resume, and a damaged state file."""

import pytest

from clustertwin.core.errors import InputError
from clustertwin.telemetry.learning.champions.learning_state import freeze, halt, read_state, record_outcome, resume


def test_learning_is_on_in_a_new_home(tmp_path):
    state = read_state(tmp_path)
    assert (state.status, state.reason) == ("learning", "")


def test_a_halt_keeps_its_first_reason_and_resume_clears_its_day(tmp_path):
    halt(tmp_path, "bad-io confirmed on n01", "2026-03-04", 10.0)
    halt(tmp_path, "another", "2026-03-05", 20.0)
    state = read_state(tmp_path)
    assert (state.status, state.reason) == ("halted", "bad-io confirmed on n01")
    state = resume(tmp_path)
    assert (state.status, state.cleared) == ("learning", ("2026-03-04",))


def test_a_freeze_keeps_its_reason_and_the_outcome_of_the_last_night(tmp_path):
    freeze(tmp_path, "benchmark week")
    record_outcome(tmp_path, "2026-03-04", "skipped", "frozen", 5.0)
    state = read_state(tmp_path)
    assert (state.status, state.reason, state.night) == ("frozen", "benchmark week", "2026-03-04")
    assert resume(tmp_path).status == "learning"


@pytest.mark.parametrize("reason", ["x" * 2_000_000, "disk \udcff"])
def test_learning_can_be_resumed_whatever_the_reason_of_its_freeze(tmp_path, reason):
    assert len(freeze(tmp_path, reason).frozen) <= 1000
    assert read_state(tmp_path).status == "frozen"
    assert resume(tmp_path).status == "learning"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"frozen": "", "surprise": 1}', '{"halted": 3}'])
def test_the_error_for_a_damaged_state_says_what_to_do(tmp_path, text):
    (tmp_path / "learning.json").write_text(text)
    with pytest.raises(InputError, match="remove it"):
        read_state(tmp_path)
