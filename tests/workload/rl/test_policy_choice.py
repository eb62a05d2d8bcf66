"""A policy is chosen by the first part of a log and judged by the rest; a policy that starves jobs is not chosen."""

from __future__ import annotations

import numpy as np
import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.policies import find_policy
from clustertwin.workload.rl.policy_choice import MOST_WORST_WAIT, choose_policy
from clustertwin.workload.simulator.admission import admit
from clustertwin.workload.simulator.machine_state import Records
from clustertwin.workload.simulator.simulate_log import SchedulingRules

RULES = SchedulingRules(8, backfill="easy")
NAMES = ("fcfs", "sjf", "smallest", "unicep")


def records(n: int = 600, seed: int = 1, gap_s: float = 500.0) -> Records:
    rng = np.random.default_rng(seed)
    run_s = rng.lognormal(6.0, 1.5, n).round() + 1
    jobs = Jobs.build(
        np.cumsum(rng.exponential(gap_s, n)).round(), run_s, request_s=run_s * 2, cpus=rng.integers(1, 9, n)
    )
    return admit(jobs, 8).records


def test_the_lowest_slowdown_of_the_first_part_is_chosen_and_the_rest_does_not_count():
    log = records()
    choice = choose_policy([find_policy(name) for name in NAMES], log, RULES)
    allowed = [trial for trial in choice.first if trial.worst_wait_ratio <= MOST_WORST_WAIT]
    assert choice.first[choice.chosen].slowdown == min(trial.slowdown for trial in allowed)
    assert choice.ratio_to_best >= 1.0
    other = log.copy()
    other["run_s"][300:] = 1.0
    assert choose_policy([find_policy(name) for name in NAMES], other, RULES).chosen == choice.chosen


def test_a_policy_that_starves_a_job_is_not_chosen():
    """Small jobs keep seven of eight processors busy, so a job of all processors waits for their end."""
    n = 400
    wide = np.arange(n) % 80 == 3
    run_s = np.where(wide, 300.0, 100.0)
    log = admit(Jobs.build(np.arange(n) * 14.0, run_s, request_s=run_s, cpus=np.where(wide, 8, 1)), 8).records
    choice = choose_policy([find_policy("smallest"), find_policy("fcfs")], log, RULES)
    smallest, fcfs = choice.first
    assert smallest.slowdown < fcfs.slowdown
    assert smallest.worst_wait_ratio > MOST_WORST_WAIT
    assert choice.chosen == 1
    with pytest.raises(SettingsError, match="every policy makes a job wait more than 3 times"):
        choose_policy([find_policy("smallest")], log, RULES)


def test_a_short_log_is_refused():
    with pytest.raises(SettingsError, match="a log of 150 jobs is too short"):
        choose_policy([find_policy("fcfs")], records(150), RULES)
