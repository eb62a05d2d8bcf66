"""The search of weights: candidates fill the axes, the front is one, and the judging part chooses nothing."""

from __future__ import annotations

import numpy as np
import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.workload.slurm.joblog.job_table import SlurmJob, SlurmLog
from clustertwin.workload.slurm.site.site_directory import parse_site
from clustertwin.workload.slurm.site.slurm_site import PRIORITY_WEIGHTS
from clustertwin.workload.slurm.weight_search import (
    SearchSettings,
    WeightPoint,
    conf_fragment,
    latin_weights,
    pareto,
    parse_objectives,
    search_weights,
)

SITE = """
[[nodes]]
names = "n[1-2]"
cores = 4
memory = "8000"
[[partitions]]
name = "batch"
default = true
memory_per_cpu_mb = 100
[priority]
job_size = 1000
"""


def crowd(n: int = 60) -> SlurmLog:
    """Whole-machine jobs of a user and one-CPU jobs of others: whoever goes first decides the mean wait."""
    jobs = []
    for k in range(n):
        wide = k % 3 == 0
        nodes, tasks = (2, 8) if wide else (1, 1)
        user = "wide" if wide else f"u{k % 5}"
        jobs.append(
            SlurmJob(k + 1, 20.0 * k, 300.0, user, limit_s=600.0, nodes_min=nodes, nodes_max=nodes, tasks=tasks)
        )
    return SlurmLog(tuple(jobs))


def test_candidates_fill_every_axis_evenly_and_include_zero():
    drawn = latin_weights(100, 1000.0, np.random.default_rng(0))
    for name in PRIORITY_WEIGHTS:
        values = np.array([weights[name] for weights in drawn])
        assert 14 <= (values == 0).sum() <= 17  # 15 % of the axis
        assert 27 <= (values > 100).sum() <= 30  # a third of the rest: one of three decades
        assert values.max() <= 1000
    assert drawn == latin_weights(100, 1000.0, np.random.default_rng(0))


def test_the_front_holds_what_nothing_beats():
    values = np.random.default_rng(1).random((50, 3))
    front = pareto(values)
    for k, row in enumerate(values):
        beaten = any((other <= row).all() and (other < row).any() for other in values)
        assert front[k] != beaten
    assert pareto(np.array([[1.0, 1.0], [1.0, 1.0]])).all()  # equal rows do not beat each other


def test_objectives_are_named_or_refused():
    assert parse_objectives("wait, fairness,wait") == ("wait", "fairness")
    for text in ("speed", "", "wait,speed"):
        with pytest.raises(SettingsError, match="choose from wait"):
            parse_objectives(text)


def test_a_fragment_has_the_weights_and_the_figures_of_the_judging_part():
    weights = dict.fromkeys(PRIORITY_WEIGHTS, 5.0)
    found = WeightPoint(weights, {"wait": 1.0}, {"wait": 80.0})
    text = conf_fragment(found, WeightPoint(weights, {"wait": 2.0}, {"wait": 100.0}), ["twin sched search"])
    assert "# wait: 80 (present weights 100)" in text
    assert "\nPriorityWeightFairshare=5\n" in text
    assert "times that of the present weights" not in text
    worse = conf_fragment(found, WeightPoint(weights, {"wait": 2.0}, {"wait": 40.0}), [])
    assert "# on the rest, wait is 2.00 times that of the present weights\n" in worse


@pytest.mark.slow
def test_a_search_beats_weights_that_favour_large_jobs_and_keeps_the_present_ones_in_the_table():
    site = parse_site(SITE, "site.toml")
    points = search_weights(site, crowd(), ("wait", "fairness"), SearchSettings(candidates=8, seed=3))
    present, chosen = points[0], next(point for point in points if point.chosen)
    assert (present.present, present.weights["job_size"]) == (True, 1000.0)
    assert chosen.first["wait"] < present.first["wait"]
    assert chosen.on_front
    front = np.array([list(point.first.values()) for point in points if point.on_front])
    assert pareto(front).all()
    again = search_weights(site, crowd(), ("wait", "fairness"), SearchSettings(candidates=8, seed=3))
    assert again == points


@pytest.mark.slow
def test_the_last_part_changes_no_choice():
    """With other jobs in the last part, the same weights are on the front and chosen."""
    site, log = parse_site(SITE, "site.toml"), crowd()
    cut = round(0.6 * len(log))
    other = SlurmLog((*log.jobs[:cut], *(SlurmJob(j.id, j.submit_s, 10.0, "x", limit_s=60.0) for j in log.jobs[cut:])))
    settings = SearchSettings(candidates=6, seed=3)
    one, two = (search_weights(site, each, ("wait", "fairness"), settings) for each in (log, other))
    assert [(p.weights, p.first, p.chosen) for p in one] == [(p.weights, p.first, p.chosen) for p in two]
    assert one[0].last != two[0].last


def test_a_log_that_is_too_short_is_refused():
    with pytest.raises(SettingsError, match="too short"):
        search_weights(parse_site(SITE, "site.toml"), crowd(12), ("wait",))
