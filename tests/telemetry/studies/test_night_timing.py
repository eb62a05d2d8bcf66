"""The duration of each step of a night, and its figure."""

from dataclasses import replace

import pytest
from tests.telemetry.learning.conftest import QUICK

from clustertwin.telemetry.studies.night_timing import NightTiming, draw_timings, time_nights


def test_one_bar_is_drawn_for_each_size(tmp_path):
    timings = [NightTiming(h, 1, 32, 100, 2, 1.0, {"gather": h, "train": 2.0}) for h in (1.0, 4.0)]
    assert timings[1].total_s == 6.0
    draw_timings(timings, tmp_path / "deep" / "timing.png")
    assert (tmp_path / "deep" / "timing.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_every_step_of_a_night_is_timed():
    calls = []
    settings = replace(QUICK, starts=("scratch", "warm"))
    (timing,) = time_nights([1.0], [32], ("linear",), lambda *call: calls.append(call), settings)
    assert calls == [("32 threads × 1 h", 0, 1)]
    assert (timing.nodes, timing.threads, timing.contestants) == (1, 32, 3)  # including the champion
    assert timing.epochs == {"linear/scratch": 1, "linear/warm": 1}
    assert {"gather", "check", "plan", "train", "judge", "choose"} <= set(timing.seconds)
    assert timing.windows > 100
    assert timing.cpu_s > 0
    assert timing.total_s == pytest.approx(sum(timing.seconds.values()))
