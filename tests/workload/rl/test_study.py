from pathlib import Path

import numpy as np
import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.rl.evolve import EvolveSettings
from clustertwin.workload.rl.study import Row, as_html, row, split, study, windows
from clustertwin.workload.rl.train import TrainSettings
from clustertwin.workload.rl.worth import Rules
from clustertwin.workload.simulator.intake import take_in

TINY = TrainSettings(
    ppo_rounds=0, evolve_rounds=1, evolve_length=64, judged_on=1, evolve=EvolveSettings(pairs=1, sequences=1)
)


def log(n: int, seed: int) -> Jobs:
    rng = np.random.default_rng(seed)
    run_s = rng.integers(1, 500, n)
    return Jobs.build(np.cumsum(rng.integers(0, 60, n)), run_s, request_s=run_s, cpus=rng.integers(1, 9, n))


def test_the_held_out_part_is_the_last():
    learn, (judge,) = split(log(100, 0), 0.3)
    assert (len(learn), len(judge)) == (70, 30)
    assert learn.submit_s[-1] <= judge.submit_s[0]
    for wrong in ({"held_out": 1.0}, {"stretches": 0}):
        with pytest.raises(SettingsError):
            split(log(100, 0), **wrong)


def test_stretches_are_held_out_at_their_ends_and_what_is_left_closes_up_by_whole_days():
    day_s = 86_400
    jobs = Jobs.build(np.arange(100) * 4 * 3600.0, np.ones(100))  # six a day
    learn, judge = split(jobs, 0.3, 4)
    assert [part.id.tolist() for part in judge] == [list(range(25 * i + 18, 25 * i + 26)) for i in range(4)]
    assert sorted([*learn.id, *np.concatenate([part.id for part in judge])]) == list(range(1, 101))
    moved_s = jobs.submit_s[learn.id - 1] - learn.submit_s
    assert (moved_s % day_s == 0).all(), "the hour of the day stays"
    assert (np.diff(learn.submit_s) >= 0).all()
    assert np.diff(learn.submit_s).max() < day_s
    assert moved_s[0] == 0


def test_windows_are_spread_over_all_stretches():
    loads = [take_in(log(50, seed), 16).load for seed in range(3)]
    found = windows(loads, 40, 7)
    assert [len(window) for window in found] == [40] * 7
    assert [any(np.shares_memory(window, load) for window in found) for load in loads] == [True] * 3


@pytest.mark.slow
def test_every_source_is_judged_beside_the_heuristics(tmp_path: Path):
    learn, judge = split(log(1000, 0), 0.3)
    rows = study(
        learn, judge, {"other": lambda seed: log(700, seed)}, Rules(16), TINY, [0, 1], tmp_path, window=(100, 3)
    )
    assert [row.name for row in rows[:3]] == ["real", "other", "real + other"]
    assert {row.name for row in rows[3:]} >= {"fcfs", "sjf"}
    assert rows[0].ratio == 1
    assert all(row.low <= row.slowdown <= row.high for row in rows)
    assert [len(row.by_seed) for row in rows[:3]] == [2, 2, 2]
    assert "real + other" in as_html(rows, "title", {})


def test_a_ratio_is_sure_where_windows_differ_and_sources_do_not():
    real = np.array([[1.0, 10.0, 100.0]])
    found = row("other", 2 * real, real)
    assert (found.ratio, found.ratio_low, found.ratio_high) == (2, 2, 2)
    assert found.low < found.slowdown < found.high


def test_names_of_logs_cannot_write_into_the_page():
    page = as_html([Row("<b>", 1.0, 1.0, 1.0, (1.0,), 1.0, 1.0, 1.0)], "<i>", {"log": "<u>"})
    assert not any(tag in page for tag in ("<b>", "<i>", "<u>"))


def test_windows_longer_than_what_is_held_out_are_refused(tmp_path: Path):
    learn, judge = split(log(300, 0), 0.3)
    with pytest.raises(SettingsError, match="hold out more"):
        study(learn, judge, {}, Rules(16), TINY, [0], tmp_path, window=(100, 3))
