from pathlib import Path

import numpy as np
import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.rl.evolution_strategies import EvolutionSettings
from clustertwin.workload.rl.policy_training import TrainSettings
from clustertwin.workload.rl.source_study import (
    SourceResult,
    SourceStudySettings,
    as_html,
    compare_sources,
    evaluation_windows,
    split,
    summarise,
)
from clustertwin.workload.simulator import SchedulingRules
from clustertwin.workload.simulator.admission import admit

TINY = TrainSettings(
    ppo_rounds=0, evolve_rounds=1, evolve_length=64, validation_sequences=1,
    evolve=EvolutionSettings(pairs=1, sequences=1),
)  # fmt: skip
SETTINGS = SourceStudySettings(SchedulingRules(16), TINY, seeds=[0, 1], window_length=100, windows=3)


def log(n: int, seed: int) -> Jobs:
    rng = np.random.default_rng(seed)
    run_s = rng.integers(1, 500, n)
    return Jobs.build(np.cumsum(rng.integers(0, 60, n)), run_s, request_s=run_s, cpus=rng.integers(1, 9, n))


def test_the_end_of_the_log_is_held_out():
    training, (evaluation,) = split(log(100, 0), 0.3)
    assert (len(training), len(evaluation)) == (70, 30)
    assert training.submit_s[-1] <= evaluation.submit_s[0]
    for wrong in ({"held_out": 1.0}, {"stretches": 0}):
        with pytest.raises(SettingsError):
            split(log(100, 0), **wrong)


def test_the_end_of_every_stretch_is_held_out_and_gaps_shrink_by_whole_days():
    day_s = 86_400
    jobs = Jobs.build(np.arange(100) * 4 * 3600.0, np.ones(100))  # six a day
    training, evaluation = split(jobs, 0.3, 4)
    assert [part.id.tolist() for part in evaluation] == [list(range(25 * i + 18, 25 * i + 26)) for i in range(4)]
    assert sorted([*training.id, *np.concatenate([part.id for part in evaluation])]) == list(range(1, 101))
    moved_s = jobs.submit_s[training.id - 1] - training.submit_s
    assert (moved_s % day_s == 0).all(), "the hour of the day does not change"
    assert (np.diff(training.submit_s) >= 0).all()
    assert np.diff(training.submit_s).max() < day_s
    assert moved_s[0] == 0


def test_windows_are_spread_over_all_stretches():
    logs = [admit(log(50, seed), 16).records for seed in range(3)]
    windows = evaluation_windows(logs, 40, 7)
    assert [len(window) for window in windows] == [40] * 7
    assert [any(np.shares_memory(window, records) for window in windows) for records in logs] == [True] * 3


@pytest.mark.slow
def test_every_source_is_evaluated_beside_the_heuristics(tmp_path: Path):
    training, evaluation = split(log(1000, 0), 0.3)
    results = compare_sources(training, evaluation, {"other": lambda seed: log(700, seed)}, SETTINGS, tmp_path)
    assert [result.name for result in results[:3]] == ["real", "other", "real + other"]
    assert {result.name for result in results[3:]} >= {"fcfs", "sjf"}
    assert results[0].ratio == 1
    assert all(result.low <= result.slowdown <= result.high for result in results)
    assert [len(result.by_seed) for result in results[:3]] == [2, 2, 2]
    assert "real + other" in as_html(results, "title", {})


def test_a_constant_ratio_has_an_interval_of_zero_width():
    real = np.array([[1.0, 10.0, 100.0]])
    result = summarise("other", 2 * real, real)
    assert (result.ratio, result.ratio_low, result.ratio_high) == (2, 2, 2)
    assert result.low < result.slowdown < result.high


def test_names_of_logs_are_escaped_in_the_page():
    page = as_html([SourceResult("<b>", 1.0, 1.0, 1.0, (1.0,), 1.0, 1.0, 1.0)], "<i>", {"log": "<u>"})
    assert not any(tag in page for tag in ("<b>", "<i>", "<u>"))


def test_windows_longer_than_the_held_out_part_are_an_error(tmp_path: Path):
    training, evaluation = split(log(300, 0), 0.3)
    with pytest.raises(SettingsError, match="only 90 consecutive jobs are held out"):
        compare_sources(training, evaluation, {}, SETTINGS, tmp_path)
