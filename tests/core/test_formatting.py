import math

import pytest

from clustertwin.core.formatting import clock, counted, duration, number, percent, ranges, sparkline


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.6, "1 min"), (93, "1 min 33 s"), (3600, "1 h"), (90061, "1 d 1 h"), (math.nan, "–"), (None, "–")],
)
def test_durations_have_two_units_at_most(seconds, text):
    assert duration(seconds) == text


def test_what_is_unknown_is_a_dash_and_never_a_zero():
    assert number(math.nan) == percent(None) == clock(None) == "–"


def test_ranges_are_the_kernels_notation():
    assert ranges((0, 1, 2, 5, 7, 8)) == "0-2,5,7-8"


def test_one_is_not_many():
    assert (counted(1, "thread"), counted(1024, "thread")) == ("1 thread", "1,024 threads")


def test_a_sparkline_breaks_where_nothing_is_known():
    assert sparkline([0.0, math.nan, 1.0, 1.0], 1.0).count("M") == 2
