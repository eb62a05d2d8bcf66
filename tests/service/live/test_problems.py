"""Problems: those of the loop, and halted or failed nights, each with what to do about it."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest
from tests.service import sample_state

from clustertwin.service.live.problems import MOST, nights, parse_log, problems
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.telemetry.learning.champions import learning_state as learning

BEGUN = "2026-11-15 02:30:00 -m clustertwin learn run --home /h --day 2026-11-14\n"


@pytest.mark.parametrize("code", [0, 75, -15])
def test_a_night_that_ended_or_was_stopped_is_not_a_problem(code):
    assert parse_log(f"{BEGUN}promoted\nexit code {code}\n") == ""


def test_a_failed_night_is_reported_with_its_day_its_reason_and_the_command():
    text = parse_log(f"{BEGUN}twin: no room left\nexit code 1\n")
    assert text.startswith("learning failed in the night of 2026-11-14: no room left. The champion stays in service.")
    assert "`twin learn run --day 2026-11-14`" in text


def test_only_the_last_night_that_has_ended_counts():
    failed = f"{BEGUN}twin: no room left\nexit code 1\n"
    later = BEGUN.replace("11-14", "11-15")
    assert parse_log(f"{failed}{later}exit code 0\n") == ""
    assert parse_log(f"{failed}{later}training\n") == ""
    assert "in the night of 2026-11-15: exit code -9" in parse_log(f"{failed}{later}exit code -9\n")


def test_a_halt_is_reported_with_its_reason_and_a_freeze_is_not_a_problem(tmp_path):
    learning.freeze(tmp_path, "exams")
    assert nights(tmp_path) == ()
    learning.resume(tmp_path)
    learning.halt(tmp_path, "an anomaly was confirmed; `twin learn resume` goes on", "2026-11-14", 1.0)
    assert nights(tmp_path) == ("learning is halted: an anomaly was confirmed; `twin learn resume` goes on",)
    learning.resume(tmp_path)
    assert nights(tmp_path) == ()


def test_a_failed_night_is_no_longer_reported_after_one_that_ended(tmp_path):
    log = tmp_path / "nights.log"
    log.write_text(f"{BEGUN}twin: no room left\nexit code 1\n")
    os.utime(log, (1000, 1000))
    assert "no room left" in nights(tmp_path)[0]
    learning.record_outcome(tmp_path, "2026-11-14", "kept", "", 2000.0)
    assert nights(tmp_path) == ()


def test_an_end_in_the_future_does_not_hide_a_failed_night(tmp_path):
    """A night ended while the clock was a year ahead. No failure was named until the year was over."""
    (tmp_path / "nights.log").write_text(f"{BEGUN}twin: no room left\nexit code 1\n")
    learning.record_outcome(tmp_path, "2027-11-14", "kept", "", time.time() + 3e7)
    assert "no room left" in nights(tmp_path)[0]


def test_a_shadow_that_ended_in_the_future_covers_no_event(tmp_path):
    """Nobody was notified until the clock had reached the end again."""
    state = ServiceState(tmp_path, None, wall_clock=lambda: 1000.0)  # type: ignore[arg-type]
    state.may_be_in_shadow = True
    learning.end_shadow(tmp_path, "enough was watched", 3e7)
    assert not state.shadow.covers(990.0)
    learning.record_outcome(tmp_path, "2026-11-14", "kept", "", 1.0)
    state = ServiceState(tmp_path, None, wall_clock=lambda: 3.1e7)  # type: ignore[arg-type]
    state.may_be_in_shadow = True
    assert state.shadow.covers(3e7)


def test_an_unreadable_state_of_learning_is_reported(tmp_path):
    (tmp_path / "learning.json").write_text("{")
    assert nights(tmp_path)[0].startswith("nothing is learned: ")


def test_the_first_of_very_many_problems_are_listed(tmp_path):
    state = sample_state.state(tmp_path)
    state.snapshot = replace(state.snapshot, problems=tuple(f"n{i} does not answer" for i in range(1000)))
    sentences = problems(state)
    assert (len(sentences), sentences[0], sentences[-1]) == (MOST + 1, "n0 does not answer", f"and {1000 - MOST} more")
    state.store.close()
