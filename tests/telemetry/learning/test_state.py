import pytest

from clustertwin.core.errors import InputError
from clustertwin.telemetry.learning.champions.learning_state import ended, freeze, halt, read_state, resume


def test_a_fresh_home_may_learn(tmp_path):
    state = read_state(tmp_path)
    assert (state.word, state.reason) == ("learning", "")


def test_a_halt_lasts_until_a_person_resumes_and_does_not_come_back_for_that_day(tmp_path):
    halt(tmp_path, "bad-io confirmed on n01", "2026-03-04", 10.0)
    halt(tmp_path, "another", "2026-03-05", 20.0)
    state = read_state(tmp_path)
    assert (state.word, state.reason) == ("halted", "bad-io confirmed on n01")
    state = resume(tmp_path)
    assert (state.word, state.cleared) == ("learning", ("2026-03-04",))


def test_frozen_says_why_and_keeps_what_the_night_noted(tmp_path):
    freeze(tmp_path, "benchmark week")
    ended(tmp_path, "2026-03-04", "skipped", "frozen", 5.0)
    state = read_state(tmp_path)
    assert (state.word, state.reason, state.night) == ("frozen", "benchmark week", "2026-03-04")
    assert resume(tmp_path).word == "learning"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"frozen": "", "surprise": 1}', '{"halted": 3}'])
def test_a_damaged_state_is_an_error_that_says_what_to_do(tmp_path, text):
    (tmp_path / "learning.json").write_text(text)
    with pytest.raises(InputError, match="remove it"):
        read_state(tmp_path)
