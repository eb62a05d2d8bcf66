"""The rehearsal memory in a home where recordings were replayed too."""

from clustertwin.telemetry.learning.night import rehearsal_memory
from clustertwin.telemetry.learning.night.day_sampling import DaySplit


def test_the_database_of_a_replay_is_no_day(tmp_path):
    for name in ("service.lock", "state.sqlite", "state.sqlite-wal"):
        (tmp_path / name).touch()
    days = [f"2026-11-{day:02d}" for day in range(1, 13)]
    for day in days:
        rehearsal_memory.add_day(tmp_path, day, DaySplit((), (), ()), moments=4, days=2)
    assert (tmp_path / "state.sqlite").exists()
    assert len(rehearsal_memory.days_before(tmp_path, "2026-12-01")) == 2
