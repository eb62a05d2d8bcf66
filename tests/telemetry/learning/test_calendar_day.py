"""Days by the wall clock: their length, their order, and yesterday."""

from datetime import UTC, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.learning.night.calendar_day import day_of, yesterday

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(("name", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-07-01", 24)])
def test_a_day_has_23_or_25_hours_when_clocks_change(name, hours):
    day = day_of(name, BERLIN)
    assert day.end_s - day.start_s == hours * 3600


@given(st.dates(), st.sampled_from(["Europe/Berlin", "America/Santiago", "Asia/Beirut", "Pacific/Apia", "UTC"]))
def test_days_follow_each_other_without_overlap(date, zone):
    if date.year in (1, 9999):
        return
    today, tomorrow = (day_of((date + timedelta(days=n)).isoformat(), ZoneInfo(zone)) for n in (0, 1))
    assert today.end_s == tomorrow.start_s
    assert today.start_s <= today.end_s


def test_yesterday_is_the_last_day_that_has_ended():
    day = day_of("2026-03-04", UTC)
    assert yesterday(day.end_s, UTC).name == "2026-03-04"
    assert yesterday(day.end_s - 1, UTC).name == "2026-03-03"


def test_a_text_that_is_not_a_day_is_refused():
    with pytest.raises(SettingsError, match="2026-11-15"):
        day_of("yesterday")
