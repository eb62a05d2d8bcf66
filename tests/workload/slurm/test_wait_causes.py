"""Causes of waits that the simulation misses: small schedules whose answer is known, without a simulation."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from clustertwin.workload.slurm.joblog.job_table import SlurmJob, SlurmLog
from clustertwin.workload.slurm.site.site_directory import parse_site
from clustertwin.workload.slurm.site_simulation import SiteSchedule
from clustertwin.workload.slurm.wait_causes import WaitCauses, explain_waits

SITE = parse_site('[[nodes]]\nnames = "n[1-10]"\ncores = 4\n[[partitions]]\nname = "batch"\ndefault = true\n', "site")


def job(user: str, submit_s: float, start_s: float, run_s: float = 3600.0, **asked: object) -> SlurmJob:
    return SlurmJob(1, submit_s, run_s, user, tasks=4, start_s=start_s, end_s=start_s + run_s, **asked)


def explain(*pairs: tuple[SlurmJob, float]) -> WaitCauses:
    """Jobs with their simulated starts; each job holds four of the 40 CPUs."""
    jobs, starts_s = tuple(one for one, _ in pairs), np.array([start_s for _, start_s in pairs])
    n = len(jobs)
    schedule = SiteSchedule(
        SITE, SlurmLog(jobs), starts_s, starts_s + 3600, np.full(n, 4.0), ("ended",) * n, np.zeros(n, np.int64),
        ((),) * n, 0, 0, 0, Counter(),
    )  # fmt: skip
    return explain_waits(schedule)


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
