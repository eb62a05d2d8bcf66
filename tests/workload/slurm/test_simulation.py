"""slurmctld in the simulator: answers small enough for paper. The first test compiles, for a minute or two."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.workload.slurm.joblog.job_table import SlurmJob, SlurmLog
from clustertwin.workload.slurm.site.quantities import Gres
from clustertwin.workload.slurm.site.site_directory import parse_site
from clustertwin.workload.slurm.site.slurm_site import SlurmSite
from clustertwin.workload.slurm.site_comparison import agreement, changes
from clustertwin.workload.slurm.site_simulation import SiteSchedule, simulate_site

pytestmark = pytest.mark.slow

SITE = """
name = "small"
[[nodes]]
names = "n[1-4]"
cores = 4
memory = "8000"
[[partitions]]
name = "batch"
default = true
max_time = "1-0"
memory_per_cpu_mb = 100
[scheduler]
bf_interval = 30
[priority]
age = 1000
"""


def site(extra: str = "", **changed) -> SlurmSite:
    return replace(parse_site(SITE + extra, "site.toml"), **changed)


def job(number: int, submit_s: float, run_s: float, **asked) -> SlurmJob:
    asked = {"user": "ann", "nodes_min": 1, "nodes_max": 1, "tasks": 4, "limit_s": 600.0} | asked
    return SlurmJob(number, submit_s, run_s, **asked)


def play(where: SlurmSite, *jobs: SlurmJob) -> SiteSchedule:
    return simulate_site(where, SlurmLog(jobs))


def test_jobs_start_at_once_while_nodes_are_free_and_then_in_order():
    schedule = play(site(), *(job(k + 1, 0.0, 100.0) for k in range(6)))
    assert schedule.start_s.tolist() == [0, 0, 0, 0, 100, 100]
    assert schedule.nodes[:4] == (("n1",), ("n2",), ("n3",), ("n4",))


def test_a_submission_waits_for_the_main_scheduler_which_keeps_a_distance():
    schedule = play(site(), job(1, 0.0, 50.0), job(2, 1.0, 50.0))
    assert schedule.start_s.tolist() == [0, 3]


def test_a_job_that_does_not_fit_closes_its_partition_until_backfill():
    wide = job(2, 1.0, 100.0, nodes_min=4, nodes_max=4, tasks=16)
    short, long = job(3, 2.0, 40.0, limit_s=60.0), job(4, 3.0, 40.0, limit_s=1200.0)
    schedule = play(site(), job(1, 0.0, 500.0), wide, short, long)
    assert schedule.start_s[1] == 500
    assert 5 <= schedule.start_s[2] <= 30  # fits before the wide job's planned start at 600
    assert schedule.start_s[3] == 600


def test_a_plan_keeps_whole_nodes():
    """The second job needs one core of a node that is planned for a whole-node job: it waits although it would fit."""
    first = job(1, 0.0, 300.0, tasks=2)
    whole = job(2, 1.0, 100.0, tasks=4)
    small = job(3, 2.0, 100.0, tasks=1, limit_s=1200.0)
    one_node = replace(site(), groups=(replace(site().groups[0], names=("n1",)),))
    one_node = replace(one_node, partitions=(replace(one_node.partitions[0], nodes=("n1",)),))
    assert play(one_node, first, whole, small).start_s.tolist() == [0, 300, 400]


def test_tasks_fill_the_first_nodes():
    schedule = play(site(), job(1, 0.0, 10.0, nodes_min=2, nodes_max=2, tasks=5))
    assert schedule.nodes[0] == ("n1", "n2")
    assert schedule.cpus[0] == 5


def test_memory_gpus_and_features_decide_where_a_job_fits():
    extra = '[[nodes]]\nnames = "g1"\ncores = 4\nmemory = "8000"\ngres = "gpu:v100:2"\nfeatures = ["ib"]\nweight = 5\n'
    where = site(extra)
    jobs = (
        job(1, 0.0, 100.0, tasks=1, gres=(Gres("gpu", "", 2),)),
        job(2, 0.0, 100.0, tasks=1, gres=(Gres("gpu", "v100", 1),)),
        job(3, 0.0, 100.0, tasks=1, constraint="ib"),
        job(4, 0.0, 100.0, tasks=1, memory_per_node_mb=8001.0),
    )
    schedule = play(where, *jobs)
    assert schedule.nodes[:3] == (("g1",),) * 3
    assert schedule.start_s[0] == 0
    assert schedule.start_s[1] == 100
    assert schedule.state[3] == "refused"


def test_limits_of_a_qos_hold_jobs_without_holding_others():
    extra = '[[qos]]\nname = "normal"\n[[qos]]\nname = "one"\nmax_jobs_user = 1\ngroup_tres = "cpu=6"\n'
    where = site(extra, enforce_limits=True)
    jobs = [job(k, 0.0, 100.0, qos="one", tasks=2) for k in (1, 2)]
    jobs += [job(3, 0.0, 100.0, qos="one", user="bob"), job(4, 0.0, 100.0, qos="one", user="cid", tasks=2)]
    schedule = play(where, *jobs, job(5, 0.0, 100.0))
    assert schedule.start_s.tolist() == [0, 100, 0, 100, 0]


def test_an_association_of_one_partition_limits_that_partition_only():
    """Its limits held in every partition, or in none, by the order of the file."""
    user = '[[accounts]]\naccount = "phys"\nuser = "ann"\n'
    extra = f'[[accounts]]\naccount = "phys"\n{user}{user}partition = "debug"\nmax_jobs = 1\n'
    where = site(extra + '[[partitions]]\nname = "debug"\n', enforce_limits=True)
    names = ("batch", "batch", "debug", "debug")
    jobs = [job(k + 1, 0.0, 100.0, account="phys", partitions=(name,)) for k, name in enumerate(names)]
    assert play(where, *jobs).start_s.tolist() == [0, 0, 0, 100]


@pytest.mark.parametrize("parents", [("phys",), ("bio", "phys")])
def test_an_account_that_is_below_itself_does_not_stop_the_simulation(parents):
    """The usage of its first job was added to the accounts above it without end."""
    names = ("phys", "bio")
    rows = [
        f'[[accounts]]\naccount = "{name}"\nparent = "{parent}"\n' for name, parent in zip(names, parents, strict=False)
    ]
    where = site("".join(rows))
    assert play(where, job(1, 0.0, 100.0, account="phys")).end_s.tolist() == [100]
    assert where.report.of("assumed") == {"accounts that are below themselves are taken below root": 1}


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ("scheduler", "bf_interval"), ("scheduler", "sched_interval"), ("scheduler", "bf_resolution"),
        ("priority", "calc_period_s"), ("priority", "dampening"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [0, -5])
def test_an_interval_that_is_not_positive_is_refused(table, name, value):
    """0 ended in a traceback, and the simulation of a negative one did not end."""
    text = SITE.replace(f"[{table}]\n", f"[{table}]\n{name} = {value}\n").replace("bf_interval = 30\n", "")
    with pytest.raises(SettingsError, match=f"{name} of the site is {value}; it must be more than 0"):
        play(parse_site(text, "site.toml"), job(1, 0.0, 100.0))


def test_a_constraint_of_very_many_brackets_is_refused_and_the_others_run():
    """It ended the simulation of the whole log with a traceback."""
    schedule = play(site(), job(1, 0.0, 100.0, constraint="(" * 5000), job(2, 0.0, 100.0))
    assert schedule.state == ("refused", "ended")


def test_more_submissions_than_allowed_are_rejected():
    extra = '[[qos]]\nname = "few"\nmax_submit_user = 2\n'
    schedule = play(site(extra, enforce_limits=True), *(job(k, 0.0, 100.0, qos="few") for k in (1, 2, 3)))
    assert schedule.state == ("ended", "ended", "rejected")


def test_dependencies_begin_times_holds_and_withdrawals():
    jobs = (
        job(1, 0.0, 100.0, succeeds=False),
        job(2, 0.0, 10.0, dependency="afterok:1"),
        job(3, 0.0, 10.0, dependency="afternotok:1"),
        job(4, 0.0, 10.0, begin_s=200.0),
        job(5, 0.0, 10.0, begin_s=np.inf),
        job(6, 0.0, 10.0, begin_s=1000.0, cancel_s=500.0),
    )
    schedule = play(site(), *jobs)
    assert np.isnan(schedule.start_s[[1, 4, 5]]).all()
    assert schedule.start_s[2] == 100
    assert 200 <= schedule.start_s[3] <= 240
    assert schedule.state[5] == "withdrawn"


def test_an_array_runs_no_more_tasks_than_its_limit():
    schedule = play(site(), *(job(k, 0.0, 100.0, tasks=1, array=1, array_limit=2) for k in range(1, 6)))
    assert schedule.start_s.tolist() == [0, 0, 100, 100, 200]


def test_a_time_limit_ends_a_job():
    schedule = play(site(), job(1, 0.0, 10_000.0, limit_s=120.0))
    assert schedule.end_s[0] == 120


def test_a_reservation_refuses_users_and_accounts_that_are_not_on_its_lists():
    extra = (
        '[[reservations]]\nname = "r"\nnodes = "n1"\nstart_s = 0\nend_s = 900\nusers = ["ann"]\naccounts = ["bio"]\n'
    )
    jobs = (
        job(1, 0.0, 50.0, reservation="r", account="bio"),
        job(2, 0.0, 50.0, reservation="r", account="bio", user="bo"),
        job(3, 0.0, 50.0, reservation="r", account="art"),
    )
    schedule = play(site(extra), *jobs)
    assert schedule.nodes[0] == ("n1",)
    assert schedule.state[1:] == ("refused", "refused")
    assert schedule.reasons["reservation r is not for the user and account"] == 2


def test_nodes_of_a_reservation_are_kept_free_for_its_jobs():
    extra = '[[reservations]]\nname = "maint"\nnodes = "n[1-4]"\nstart_s = 300\nend_s = 900\n'
    jobs = (job(1, 0.0, 50.0, limit_s=240.0), job(2, 0.0, 50.0, limit_s=600.0), job(3, 0.0, 50.0, reservation="maint"))
    schedule = play(site(extra), *jobs)
    assert schedule.start_s[0] == 0
    assert 900 <= schedule.start_s[1] <= 960
    assert 300 <= schedule.start_s[2] <= 330


@pytest.mark.parametrize(("mode", "starts", "ends"), [
    ("requeue", [180, 20], [280, 50]), ("cancel", [0, 20], [20, 50]), ("suspend", [0, 20], [130, 50]),
])  # fmt: skip
def test_a_higher_tier_preempts_a_lower_one(mode, starts, ends):
    extra = '[[partitions]]\nname = "high"\npriority_tier = 5\nmemory_per_cpu_mb = 100\n'
    extra += f'[preemption]\nkind = "partition"\nmode = "{mode}"\n'
    low = job(1, 0.0, 100.0, nodes_min=4, nodes_max=4, tasks=16)
    boss = replace(low, id=2, submit_s=20.0, run_s=30.0, partitions=("high",))
    schedule = play(site(extra), low, boss)
    assert schedule.start_s.tolist() == starts
    assert schedule.end_s.tolist() == ends
    assert schedule.preemptions == 1


def test_the_account_that_used_less_goes_first_and_old_usage_fades():
    where = site()
    half_life = replace(where.priority, age=0.0, fair_share=1000.0, half_life_s=600.0, calc_period_s=60.0)
    whole = {"nodes_min": 4, "nodes_max": 4, "tasks": 16}
    jobs = [job(1, 0.0, 120.0, account="a", **whole)]
    jobs += [job(2, 10.0, 50.0, account="a", **whole), job(3, 20.0, 50.0, account="b", user="bob", **whole)]
    for fair_tree in (True, False):
        schedule = play(replace(where, priority=replace(half_life, fair_tree=fair_tree)), *jobs)
        assert schedule.start_s.tolist() == [0, 170, 120]


def test_nice_moves_a_job_back():
    whole = {"nodes_min": 4, "nodes_max": 4, "tasks": 16}
    base = replace(site(), priority=replace(site().priority, qos=0.0, job_size=10_000.0))
    jobs = [job(1, 0.0, 100.0, **whole), job(2, 10.0, 50.0, nice=5000, **whole), job(3, 20.0, 50.0, **whole)]
    assert play(base, *jobs).start_s.tolist() == [0, 150, 100]


def test_validation_compares_with_recorded_starts_and_changes_with_another_site():
    jobs = [replace(job(k + 1, 0.0, 100.0), start_s=100.0 * (k // 4)) for k in range(8)]
    old = play(site(), *jobs)
    row = agreement(old)["all"][0]
    assert (row.jobs, row.spearman, row.within_minute_ratio) == (8, 1.0, 1.0)
    assert row.spearman_of_cycles == 1.0
    more = replace(site().groups[0], names=tuple(f"n{k}" for k in range(1, 9)))
    bigger = replace(site(), groups=(more,), partitions=(replace(site().partitions[0], nodes=more.names),))
    change = changes(old, play(bigger, *jobs))["all"][0]
    assert (change.old_wait_s, change.new_wait_s) == (50.0, 0.0)


def test_no_job_starts_before_it_is_submitted_and_no_node_is_overfull():
    rng = np.random.default_rng(3)
    jobs = [
        job(k + 1, float(k * 20), float(rng.integers(10, 900)), tasks=int(rng.integers(1, 9)), user=f"u{k % 5}",
            nodes_max=2, limit_s=float(rng.integers(1, 20) * 60))
        for k in range(200)
    ]  # fmt: skip
    schedule = play(site(), *jobs)
    assert (schedule.wait_s >= 0).all()
    moments = np.unique(schedule.start_s)
    for moment in moments:
        running = (schedule.start_s <= moment) & (schedule.end_s > moment)
        assert schedule.cpus[running].sum() <= 16
    assert play(site(), *jobs).start_s.tolist() == schedule.start_s.tolist()


def test_no_whole_node_job_starts_on_a_node_that_is_down():
    up, down = (replace(site().groups[0], names=names) for names in (("n1",), ("n2", "n3", "n4")))
    where = site(groups=(up, replace(down, available=False)))
    schedule = play(where, job(1, 0.0, 100.0, exclusive=True), job(2, 0.0, 100.0, exclusive=True))
    assert schedule.nodes == (("n1",), ("n1",))
    assert schedule.start_s.tolist() == [0, 100]
