import math

import pytest

from clustertwin.core.formatting import clock, counted, duration, number, percent, ranges, sparkline


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.6, "1 min"), (93, "1 min 33 s"), (3600, "1 h"), (90061, "1 d 1 h"), (math.nan, "–"), (None, "–")],
)
def test_durations_have_two_units_at_most(seconds, text):
    assert duration(seconds) == text


def test_an_unknown_value_is_a_dash():
    assert number(math.nan) == percent(None) == clock(None) == "–"


def test_ranges_are_the_kernels_notation():
    assert ranges((0, 1, 2, 5, 7, 8)) == "0-2,5,7-8"


def test_a_count_of_one_has_a_singular_noun():
    assert (counted(1, "thread"), counted(1024, "thread")) == ("1 thread", "1,024 threads")


def test_a_sparkline_has_a_gap_for_unknown_values():
    assert sparkline([0.0, math.nan, 1.0, 1.0], 1.0).count("M") == 2
