"""Causes of waits that the simulation misses: small schedules whose answer is known, without a simulation."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from clustertwin.workload.slurm.joblog.job_table import SlurmJob, SlurmLog
from clustertwin.workload.slurm.site.site_directory import parse_site
from clustertwin.workload.slurm.site_comparison import agreement
from clustertwin.workload.slurm.site_simulation import SiteSchedule
from clustertwin.workload.slurm.wait_causes import WaitCauses, explain_waits

SITE = parse_site('[[nodes]]\nnames = "n[1-10]"\ncores = 4\n[[partitions]]\nname = "batch"\ndefault = true\n', "site")


def job(user: str, submit_s: float, start_s: float, run_s: float = 3600.0, **asked: object) -> SlurmJob:
    return SlurmJob(1, submit_s, run_s, user, tasks=4, start_s=start_s, end_s=start_s + run_s, **asked)


def scheduled(*pairs: tuple[SlurmJob, float]) -> SiteSchedule:
    """Jobs with their simulated starts; each job holds four of the 40 CPUs."""
    jobs, starts_s = tuple(one for one, _ in pairs), np.array([start_s for _, start_s in pairs])
    n = len(jobs)
    return SiteSchedule(
        SITE, SlurmLog(jobs), starts_s, starts_s + 3600, np.full(n, 4.0), ("ended",) * n, np.zeros(n, np.int64),
        ((),) * n, 0, 0, 0, Counter(),
    )  # fmt: skip


def explain(*pairs: tuple[SlurmJob, float]) -> WaitCauses:
    return explain_waits(scheduled(*pairs))


def test_the_order_of_waits_within_a_cycle_does_not_count_in_cycles():
    """Of 25 jobs, 20 wait 1 to 20 s, in the other order than simulated; five wait for minutes, as simulated."""
    short = [(job("ann", 0.0, 1.0 + k), 20.0 - k) for k in range(20)]
    long = [(job("ann", 0.0, 600.0 * k + 5.0), 600.0 * k) for k in range(1, 6)]
    row = agreement(scheduled(*short, *long))["all"][0]
    assert row.spearman < 0.5
    assert row.spearman_of_cycles == 1.0
    assert row.within_cycle_ratio == 0.8


def test_an_idle_machine_with_jobs_of_two_users_waiting_was_out():
    """From 1000 s to 20,000 s nothing runs, and four jobs wait that would fit."""
    late = [(job(user, 1000.0, 20_000.0 + k), 1000.0) for k, user in enumerate(["ann", "bob", "ann", "cid"])]
    causes = explain((job("ann", 0.0, 0.0, 900.0), 0.0), *late)
    (outage,) = causes.outages
    assert (outage.partition, outage.waiting) == ("batch", 4)
    assert outage.start_s == pytest.approx(1000, abs=120)
    assert outage.end_s == pytest.approx(20_000, abs=120)
    assert outage.used_ratio == pytest.approx(0.0)
    assert causes.jobs == {"outage": 4, "held": 0, "busy": 0, "early": 0, "met": 1}
    assert causes.extra_s["outage"] == pytest.approx(4 * 19_000, abs=10)


def test_a_queue_that_catches_up_after_an_outage_is_not_one():
    """Nothing runs until 10,000 s; then the machine is full, and two jobs wait longer than in the simulation."""
    out = [(job(user, 0.0, 10_000.0, 30_000.0), 0.0) for user in "abcdefghi"]
    behind = [(job(user, 0.0, 40_000.0), 0.0) for user in ("ann", "bob")]
    (outage,) = explain(*out, *behind).outages
    assert outage.end_s == pytest.approx(10_000, abs=120)


def nodes_out(users: tuple[str, str]) -> WaitCauses:
    """Nodes n8 to n10 run nothing from 1000 to 20,000 s, while the others are full and two jobs wait."""
    busy = [(job("eve", 0.0, 0.0, 30_000.0, nodes=(f"n{k}",)), 0.0) for k in range(1, 8)]
    before = [(job("eve", 0.0, 0.0, 1000.0, nodes=(f"n{k}",)), 0.0) for k in (8, 9, 10)]
    late = [(job(user, 500.0, 20_000.0, nodes=(f"n{k}",)), 1000.0) for k, user in zip((8, 9), users, strict=True)]
    return explain(*busy, *before, *late, (job("eve", 19_000.0, 20_000.0, nodes=("n10",)), 20_000.0))


def test_nodes_that_run_nothing_while_two_users_wait_were_out():
    (outage,) = nodes_out(("ann", "bob")).outages
    assert (outage.start_s, outage.end_s) == pytest.approx((1000, 20_000), abs=120)
    assert outage.used_ratio == pytest.approx(0.7)
    assert nodes_out(("ann", "ann")).outages == ()


def test_one_user_who_waits_on_an_idle_machine_is_held():
    causes = explain((job("ann", 1000.0, 9000.0), 1000.0), (job("ann", 1000.0, 9000.0), 1000.0))
    assert causes.outages == ()
    assert causes.jobs["held"] == 2


def test_jobs_that_wait_for_a_full_machine_are_no_sign_of_an_outage():
    full = [(job("eve", 0.0, 0.0, 10_000.0), 0.0) for _ in range(10)]
    late = [(job(user, 100.0, 10_000.0), 100.0) for user in ("ann", "bob")]
    causes = explain(*full, *late)
    assert causes.outages == ()
    assert (causes.jobs["busy"], causes.jobs["met"]) == (2, 10)


def test_jobs_that_the_simulation_holds_too_and_jobs_with_gpus_are_no_evidence():
    """A QOS limit held both in the simulation as in the record; a constraint may name nodes that were full."""
    limited = [(job(user, 0.0, 9000.0), 9000.0) for user in ("ann", "bob")]
    special = [(job(user, 0.0, 9000.0, constraint="ib"), 0.0) for user in ("ann", "bob")]
    causes = explain(*limited, *special)
    assert causes.outages == ()
    assert (causes.jobs["met"], causes.jobs["held"]) == (2, 2)


def test_a_start_that_is_earlier_than_the_simulated_one_is_counted_apart():
    causes = explain((job("ann", 0.0, 0.0), 5000.0))
    assert causes.jobs["early"] == 1
    assert causes.extra_s["early"] == -5000.0


def test_a_log_without_recorded_starts_explains_nothing():
    causes = explain((SlurmJob(1, 0.0, 10.0, "ann"), 0.0))
    assert sum(causes.jobs.values()) == 0
