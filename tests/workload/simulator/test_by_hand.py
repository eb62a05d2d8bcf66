"""Schedules of three or four jobs on four processors, worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from clustertwin.workload.formats import read, write
from clustertwin.workload.jobs import Jobs, Machine
from clustertwin.workload.policies import POLICIES
from clustertwin.workload.simulator import simulate


def table(*rows: tuple[float, int, float, float]) -> Jobs:
    """Jobs from rows of (submit, processors, run, request)."""
    submit_s, cpus, run_s, request_s = zip(*rows, strict=True)
    return Jobs.build(submit_s=submit_s, run_s=run_s, request_s=request_s, cpus=cpus)


# The first job fills the machine until 10 s; the second is wide and long, the third narrow and short.
CHOICE = table((0, 4, 10, 10), (1, 3, 20, 20), (2, 2, 5, 5))
WIDE_FIRST, SHORT_FIRST = [0, 10, 30], [0, 15, 10]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("policy", "starts"),
    [
        ("fcfs", WIDE_FIRST),  # 1 s before 2 s
        ("sjf", SHORT_FIRST),  # 5 s before 20 s
        ("smallest", SHORT_FIRST),  # 2 before 3 processors
        ("f1", WIDE_FIRST),  # 3 log 20 + 870 log 1 = 3.9 before 2 log 5 + 870 log 2 = 263.3
        ("wfp3", SHORT_FIRST),  # (8/5)³ · 2 = 8.2 beats (9/20)³ · 3 = 0.27
        ("unicep", SHORT_FIRST),  # 8 / (1 · 5) = 1.6 beats 9 / (log2 3 · 20) = 0.28
        ("multifactor", WIDE_FIRST),  # same user, almost the same age: the size factor decides
    ],
)
def test_the_choice_at_ten_seconds(policy: str, starts: list[float]):
    assert simulate(CHOICE, procs=4, policy=policy, hold=False).start_s.tolist() == starts


@pytest.mark.parametrize("policy", POLICIES)
def test_a_selected_job_blocks_until_it_fits(policy: str):
    # At 1 s the second job is alone in the queue, so it is selected and keeps the head.
    assert simulate(CHOICE, procs=4, policy=policy).start_s.tolist() == WIDE_FIRST


@pytest.mark.parametrize("hold", [True, False])
@pytest.mark.parametrize("backfill", ["easy", "conservative"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_short_job_is_backfilled(policy: str, backfill: str, hold: bool):
    jobs = table((0, 3, 10, 10), (1, 4, 10, 10), (2, 1, 5, 5))
    assert simulate(jobs, 4, policy, backfill, hold=hold).start_s.tolist() == [0, 10, 2]


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_a_long_job_is_not_backfilled_if_it_would_delay_the_head(backfill: str):
    jobs = table((0, 3, 10, 10), (1, 4, 10, 10), (2, 1, 20, 20))
    assert simulate(jobs, 4, "fcfs", backfill).start_s.tolist() == [0, 10, 20]


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_a_long_job_is_backfilled_on_extra_processors(backfill: str):
    jobs = table((0, 3, 10, 10), (1, 3, 10, 10), (2, 1, 20, 20))
    assert simulate(jobs, 4, "fcfs", backfill).start_s.tolist() == [0, 10, 2]


def test_conservative_keeps_a_reservation_that_easy_delays():
    # The third job could start at 20 s. The fourth ends at 23 s: it does not delay the head, but it delays the third.
    jobs = table((0, 3, 10, 10), (1, 3, 10, 10), (2, 4, 10, 10), (3, 1, 20, 20))
    assert simulate(jobs, 4, "fcfs", "easy").start_s.tolist() == [0, 10, 23, 3]
    assert simulate(jobs, 4, "fcfs", "conservative").start_s.tolist() == [0, 10, 20, 30]


def test_conservative_counts_fractions_of_a_second_once():
    # 14.6 - 4.3 rounds to 10.3, and 4.3 + 10.3 to more than 14.6: the last job would overlap the one before it.
    jobs = table((0, 1, 14.6, 14.6), (1, 4, 5, 5), (4.3, 1, 10.3, 10.3))
    assert simulate(jobs, 4, "fcfs", "conservative").start_s.tolist() == [0, 14.6, 19.6]


def test_an_early_end_moves_reservations_forward():
    jobs = table((0, 4, 4, 10), (1, 4, 10, 10), (2, 2, 10, 10))
    for backfill in ("easy", "conservative"):
        assert simulate(jobs, 4, "fcfs", backfill).start_s.tolist() == [0, 4, 14]


def test_a_submission_comes_before_an_early_end_of_the_same_second():
    # At 10 s the third job is submitted and the first ends, ten seconds early. The third is backfilled before that end
    # is known; if the end came first, the second job would start at 10 s.
    jobs = table((0, 3, 10, 20), (1, 4, 10, 10), (10, 1, 5, 5))
    assert simulate(jobs, 4, "fcfs", "easy").start_s.tolist() == [0, 15, 10]


def test_an_expected_end_comes_before_a_submission_of_the_same_second():
    # The first job ends at its limit, so its processors are free when the third job is submitted.
    jobs = table((0, 3, 10, 10), (1, 4, 10, 10), (10, 1, 5, 5))
    assert simulate(jobs, 4, "fcfs", "easy").start_s.tolist() == [0, 10, 20]


def test_without_backfilling_all_events_of_a_second_come_before_the_decision():
    # The policy knows the third job when the early end makes room, and selects it.
    jobs = table((0, 4, 10, 20), (10, 4, 10, 10), (10, 4, 5, 5))
    assert simulate(jobs, 4, "sjf", hold=False).start_s.tolist() == [0, 15, 10]


@pytest.mark.parametrize("backfill", ["none", "easy", "conservative"])
def test_jobs_of_the_same_second_keep_the_order_of_their_numbers(backfill: str):
    jobs = Jobs.build([0, 0, 0], [10, 10, 10], request_s=[10, 10, 10], cpus=[4, 4, 4], id=[3, 1, 2])
    schedule = simulate(jobs, 4, "fcfs", backfill)
    assert schedule.jobs.id.tolist() == [1, 2, 3]
    assert schedule.start_s.tolist() == [0, 10, 20]


def test_a_job_is_killed_at_its_limit_only_if_set():
    jobs = table((0, 4, 100, 10), (0, 4, 1, 1), (0, 4, 1, 1))
    assert simulate(jobs, 4, kill_at_limit=True).start_s.tolist() == [0, 10, 11]
    assert simulate(jobs, 4, kill_at_limit=False).start_s.tolist() == [0, 100, 101]


def test_gpus_are_a_second_resource():
    jobs = Jobs.build([0, 0, 0], [10, 10, 10], request_s=[10, 10, 10], cpus=[1, 1, 1], gpus=[2, 1, 0])
    assert simulate(jobs, 4, gpus=2).start_s.tolist() == [0, 10, 10]
    assert simulate(jobs, 4, gpus=2, backfill="easy").start_s.tolist() == [0, 10, 0]
    assert simulate(jobs, 4, gpus=2, backfill="conservative").start_s.tolist() == [0, 10, 0]
    assert simulate(jobs, 4).start_s.tolist() == [0, 0, 0]


def test_metrics_of_three_jobs():
    schedule = simulate(table((0, 4, 10, 10), (0, 4, 20, 20), (0, 2, 5, 5)), procs=4)
    assert schedule.wait_s.tolist() == [0, 10, 30]
    assert schedule.bounded_slowdown().tolist() == [
        1,
        1.5,
        3.5,
    ]  # 10/10, 30/20, 35/10: the bound is 10 s
    metrics = schedule.metrics()
    assert metrics.bounded_slowdown.mean == pytest.approx(2.0)
    assert metrics.utilisation_ratio == pytest.approx((40 + 80 + 10) / (4 * 35))
    assert metrics.makespan_s == 35


def test_trimming_leaves_out_both_ends():
    n = 100
    jobs = Jobs.build(np.arange(n), np.full(n, 2.0), request_s=np.full(n, 2.0), cpus=np.ones(n), user=np.arange(n) % 3)
    schedule = simulate(jobs, procs=1)  # each job waits one second longer than the previous one
    assert schedule.metrics().wait_s.mean == pytest.approx(49.5)
    trimmed = schedule.metrics(trim=0.4)  # jobs 40 to 59: the last one ends at 120
    assert (trimmed.jobs, trimmed.makespan_s) == (20, 80)
    low, high = schedule.metrics().wait_s.low, schedule.metrics().wait_s.high
    assert low < 49.5 < high


@pytest.mark.parametrize(
    ("machine", "procs", "unit", "cpus"),
    [
        (Machine(8, 1), 16, "cpus", 16),
        (Machine(4, 4), 32, "cpus", 32),
        (Machine(4, 4), 6, "cpus", 6),
        (Machine(4, 4), 2, "nodes", 8),
        (Machine(), 3, "nodes", 12),  # no job has more than 4 cpus on a node
        (Machine(cpus_per_node=8), 3, "nodes", 24),
    ],
)
def test_a_written_schedule_states_the_simulated_machine(machine, procs, unit, cpus, tmp_path):
    """It stated the machine of the log, or as many cpus as nodes, and its own jobs were too large to be read."""
    log = replace(Jobs.build([0, 1], [5, 5], nodes=[1, 2], cpus=[4, 6]), machine=machine)
    write(simulate(log, procs, unit=unit).as_jobs(), tmp_path / "out.swf")
    assert read(tmp_path / "out.swf").machine.cpus == cpus
