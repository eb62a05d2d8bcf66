"""A night of a given size, step by step, and its picture."""

from dataclasses import replace

import pytest
from tests.telemetry.learning.conftest import QUICK

from clustertwin.telemetry.studies.night_timing import Timed, draw, measure


def test_bars_are_drawn_for_each_size(tmp_path):
    rows = [Timed(h, 1, 32, 100, 2, 1.0, {"gather": h, "train": 2.0}) for h in (1.0, 4.0)]
    assert rows[1].total_s == 6.0
    draw(rows, tmp_path / "deep" / "timing.png")
    assert (tmp_path / "deep" / "timing.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_every_step_of_a_night_is_timed():
    told = []
    settings = replace(QUICK, starts=("scratch", "warm"))
    (row,) = measure([1.0], [32], ("linear",), lambda step, done, of: told.append((step, done, of)), settings)
    assert told == [("32 threads × 1 h", 0, 1)]
    assert (row.nodes, row.threads, row.contestants) == (1, 32, 3)  # the champion too
    assert row.epochs == {"linear/scratch": 1, "linear/warm": 1}
    assert {"gather", "check", "plan", "train", "judge", "choose"} <= set(row.seconds)
    assert row.windows > 100
    assert row.cpu_s > 0
    assert row.total_s == pytest.approx(sum(row.seconds.values()))
