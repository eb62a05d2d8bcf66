"""What an action saves, on queues small enough for paper."""

from __future__ import annotations

import numpy as np
import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.core.job_health import ClusterHealth, JobHealth
from clustertwin.workload.simulator.forecast.action_outcomes import ActionSettings, predict_outcomes
from clustertwin.workload.simulator.forecast.squeue import parse_squeue
from clustertwin.workload.simulator.forecast.start_times import Scenario

#: Job 1 holds all eight CPUs for another 50 minutes; job 2 waits for all of them.
QUEUE = "1|ada|RUNNING|8|2|1:00:00|10:00|None\n2|bob|PENDING|8|2|30:00|0:00|Resources\n"
HUNG = JobHealth("1", True, 1.0)


def outcomes(text: str = QUEUE, health: JobHealth = HUNG, **settings):
    chosen = ActionSettings(**{"futures": 40, "releases_s": (30.0,), **settings})
    scenario = Scenario("now", "fcfs", "easy", 8)
    found = predict_outcomes(parse_squeue(text), health, scenario, None, np.random.default_rng(0), chosen)
    return {outcome.choice: outcome for outcome in found}


def test_a_job_that_hangs_would_keep_its_nodes_to_the_limit():
    saved = outcomes()["cancel"].saved_node_hours
    assert saved.middle == pytest.approx(2 * (3000 - 30) / 3600)
    assert saved.low == saved.high == saved.middle


def test_a_waiting_job_starts_when_the_cancelled_one_has_ended():
    (start,) = outcomes()["cancel"].starts
    assert start.job == "2"
    assert start.earlier_s.middle == pytest.approx(3000 - 30)
    assert start.start_s.middle == pytest.approx(30)


def test_a_requeued_job_waits_behind_the_others():
    (start,) = outcomes()["requeue"].starts
    assert start.earlier_s.middle == pytest.approx(3000 - 30)


def test_draining_saves_nothing_and_delays_the_waiting_job():
    drained = outcomes()["drain"]
    assert drained.saved_node_hours.middle == 0
    assert drained.starts[0].earlier_s.middle < 0


def test_leaving_the_job_alone_changes_nothing():
    left = outcomes()["leave"]
    assert (left.saved_node_hours.middle, left.starts, left.lost_node_hours) == (0.0, (), 0.0)


def test_the_cost_of_an_error_is_the_work_since_the_start():
    assert outcomes()["cancel"].lost_node_hours == pytest.approx(2 * 600 / 3600)


def test_doubt_widens_the_interval():
    saved = outcomes(health=JobHealth("1", True, 0.6))["cancel"].saved_node_hours
    assert saved.low < saved.high
    assert saved.high == pytest.approx(2 * (3000 - 30) / 3600)


def test_the_time_that_slurm_allows_beyond_the_limit_counts():
    assert outcomes(overruns_s=(30.0,))["cancel"].saved_node_hours.middle == pytest.approx(2 * 3000 / 3600)


def test_the_interval_has_the_overruns_that_were_seen():
    saved = outcomes(overruns_s=(0.0, 15.0, 30.0), futures=200)["cancel"].saved_node_hours
    assert (saved.low, saved.high) == pytest.approx((2 * 2970 / 3600, 2 * 3000 / 3600))


def test_the_interval_has_the_time_that_the_job_takes_to_end():
    saved = outcomes(releases_s=(0.0, 15.0, 30.0))["cancel"].saved_node_hours
    assert (saved.low, saved.high) == pytest.approx((2 * 2970 / 3600, 2 * 3000 / 3600))


def test_another_job_that_hangs_is_expected_to_run_to_its_limit():
    # Job 3 holds four CPUs and may end at any time, or hangs; job 2 needs all eight.
    text = "1|ada|RUNNING|4|1|1:00:00|10:00|None\n3|eve|RUNNING|4|1|2:00:00|10:00|None\n" + (
        "2|bob|PENDING|8|2|30:00|0:00|Resources\n"
    )
    unknown = outcomes(text)["cancel"].starts[0].start_s
    known = ClusterHealth({"3": JobHealth("3", True, 1.0)})
    assert outcomes(text, known=known)["cancel"].starts == ()  # job 2 waits for job 3 in both cases
    assert unknown.middle < 6600
    ends = ClusterHealth({"3": JobHealth("3", False, 1.0, left_s=600.0)})
    assert outcomes(text, known=ends)["cancel"].starts[0].start_s.middle == pytest.approx(600)


def test_the_same_seed_gives_the_same_outcomes():
    doubtful = JobHealth("1", True, 0.5)
    assert outcomes(health=doubtful) == outcomes(health=doubtful)


def test_a_job_that_ended_meanwhile_is_an_error_of_one_sentence():
    with pytest.raises(SettingsError, match="job 7 does not run"):
        outcomes(health=JobHealth("7", True, 1.0))
