"""Parse durations: known answers, errors, and agreement with the formatted text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.core.durations import parse_duration
from clustertwin.core.errors import SettingsError
from clustertwin.core.formatting import duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("30 min", 1800), ("2h", 7200), ("1h 30min", 5400), ("1.5 d", 129_600), (" 1 w ", 604_800)]
)
def test_known_answers(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "2", "h", "2 hours!", "0 s", "-1 h", "nan h", "9" * 400 + " d", "1 fortnight"])
def test_an_invalid_duration_is_refused_with_examples(text):
    with pytest.raises(SettingsError, match="write 30 min, 2 h"):
        parse_duration(text)


@given(st.integers(1, 86_400 * 365))
def test_a_formatted_duration_can_be_parsed(seconds):
    assert abs(parse_duration(duration(seconds)) - seconds) < max(60, seconds / 24)  # two units are kept
