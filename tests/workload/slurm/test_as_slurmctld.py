"""What a slurmctld 22.05.8 did on small random sites, as answers small enough for paper. The first test compiles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustertwin.workload.slurm.controller.backfill import backfill_cycle, new_node_space
from clustertwin.workload.slurm.controller.controller_state import PENDING, QUEUED, new_state, start_job
from clustertwin.workload.slurm.controller.site_preparation import prepare
from clustertwin.workload.slurm.joblog.job_readers import parse_events
from clustertwin.workload.slurm.joblog.job_table import SlurmJob, SlurmLog
from clustertwin.workload.slurm.site.site_directory import parse_site, read_site
from clustertwin.workload.slurm.site.slurm_site import SlurmSite
from clustertwin.workload.slurm.site_simulation import SiteSchedule, simulate_site

pytestmark = pytest.mark.slow

SITE = """
[[nodes]]
names = "n[1-4]"
cores = 4
memory = "8000"
[scheduler]
bf_interval = 30
[priority]
age = 1000
"""
BATCH = '[[partitions]]\nname = "batch"\ndefault = true\nmax_time = "1-0"\nmemory_per_cpu_mb = 100\n'


def site(extra: str = "", nodes: str = SITE, **changed) -> SlurmSite:
    return replace(parse_site(nodes + BATCH + extra, "site.toml"), **changed)


def job(number: int, submit_s: float = 0.0, run_s: float = 100.0, **asked) -> SlurmJob:
    return SlurmJob(number, submit_s, run_s, **{"user": "ann", "tasks": 1, "limit_s": 600.0} | asked)


def play(where: SlurmSite, *jobs: SlurmJob) -> SiteSchedule:
    return simulate_site(where, SlurmLog(jobs))


def test_a_range_of_nodes_gets_as_many_as_it_can_and_its_tasks_are_dealt_in_turn():
    """`-N 2-4 -n 7` on four idle nodes of four cores had 3, 2, 1 and 1 CPUs; three are left on n3."""
    schedule = play(site(), job(1, nodes_min=2, nodes_max=4, tasks=7), job(2, 1.0, tasks=3, nodes_min=1, nodes_max=1))
    assert (schedule.nodes[0], schedule.cpus[0]) == (("n1", "n2", "n3", "n4"), 7)
    assert schedule.nodes[1] == ("n3",)


def test_a_range_gets_no_more_nodes_than_it_has_tasks():
    """`-N 2-4 -n 3` had three nodes."""
    assert len(play(site(), job(1, nodes_min=2, nodes_max=4, tasks=3)).nodes[0]) == 3


def test_each_node_has_the_cpus_of_all_its_tasks_per_node():
    """`-n 8 --ntasks-per-node=3` had 3 CPUs on each of three nodes."""
    assert play(site(), job(1, tasks=8, tasks_per_node=3)).cpus[0] == 9


def test_a_job_of_two_partitions_takes_the_memory_of_the_one_that_it_runs_in():
    """`-p whole,batch` had all memory of its nodes in `whole`, which has no default, and 300 MB a CPU in the other."""
    whole = '[[partitions]]\nname = "whole"\nnodes = "n[1-2]"\n'
    both = job(1, partitions=("whole", "batch"))
    assert play(site(whole), both, job(2, 1.0)).nodes[1] == ("n2",)


@pytest.mark.parametrize(("asked", "cpus"), [
    ({"memory_per_cpu_mb": 2500.0}, 6), ({"memory_per_node_mb": 8000.0, "tasks": 6, "tasks_per_node": 2}, 12),
])  # fmt: skip
def test_memory_beyond_maxmempercpu_comes_with_more_cpus(asked, cpus):
    """With MaxMemPerCPU=2000, `-N 3 --mem-per-cpu=2500` had 2 CPUs on each node, and `--mem=8000` had 4."""
    where = site(max_memory_per_cpu_mb=2000.0)
    assert play(where, job(1, **{"nodes_min": 3, "nodes_max": 3, "tasks": 3} | asked)).cpus[0] == cpus


def test_a_job_of_two_partitions_has_more_cpus_only_where_memory_is_limited():
    """With MaxMemPerCPU=100 in `small`, a job with 400 MB a CPU had four CPUs in the other partition too."""
    small = '[[partitions]]\nname = "small"\nnodes = "n1"\nmax_memory_per_cpu_mb = 100\n'
    both = job(2, 1.0, partitions=("small", "batch"), memory_per_cpu_mb=400.0)
    schedule = play(site(small), job(1, tasks=4, partitions=("small",)), both)
    assert (schedule.nodes[1], schedule.cpus[1]) == (("n2",), 1)


def test_maxmempercpu_is_read_for_the_cluster_and_for_a_partition(tmp_path):
    text = "MaxMemPerCPU=2000\nNodeName=n1 CPUs=4\nPartitionName=a Nodes=n1 MaxMemPerCPU=500\n"
    (tmp_path / "slurm.conf").write_text(text)
    where = read_site(tmp_path)
    assert (where.max_memory_per_cpu_mb, where.partitions[0].max_memory_per_cpu_mb) == (2000, 500)


def test_nodes_that_a_job_names_or_excludes_are_its_own_or_not():
    """`-N 3 -n 3 -w a10` ran on a10 and its first free neighbours, `-x` on others than those named."""
    schedule = play(
        site(), job(1, nodes_min=2, nodes_max=2, tasks=2, nodelist="n3"), job(2, 1.0, tasks=4, exclude="n2")
    )
    assert sorted(schedule.nodes[0]) == ["n1", "n3"]
    assert schedule.nodes[1] == ("n4",)


def test_a_job_waits_for_the_nodes_that_it_names():
    schedule = play(site(), job(1, tasks=4), job(2, 1.0, nodelist="n1"))
    assert (schedule.start_s[1], schedule.nodes[1]) == (100, ("n1",))


@pytest.mark.parametrize("names", ["n9", "n[1-", "n[1-900000]", "n1," * 9000])
def test_a_job_that_names_nodes_that_it_cannot_have_is_refused(names):
    assert play(site(), job(1, nodelist=names), job(2)).state == ("refused", "ended")


def test_a_constraint_with_a_feature_of_no_node_is_refused():
    """`ib|old` on nodes with `ib` only: Invalid feature specification."""
    where = site(nodes=SITE.replace("cores = 4", 'cores = 4\nfeatures = ["ib"]'))
    assert play(where, job(1, constraint="ib|old"), job(2, constraint="ib")).state == ("refused", "ended")


def test_a_feature_whose_name_begins_with_a_digit_is_found():
    """`25g` was read as the feature `g`, which no node has, and the job was refused."""
    where = site(nodes=SITE.replace("cores = 4", 'cores = 4\nfeatures = ["25g", "2.4GHz"]'))
    assert play(where, job(1, constraint="25g&2.4GHz")).state == ("ended",)


def test_a_plan_ends_at_a_whole_step_before_its_end():
    """A job of 4 minutes planned for 23:23:08 kept its node until 23:27:00, with bf_resolution=60."""
    whole = {"nodes_min": 4, "nodes_max": 4, "tasks": 16}
    prepared = prepare(site(), SlurmLog((job(1, limit_s=300.0, **whole), job(2, limit_s=240.0, **whole))))
    arrays = prepared.arrays
    state, space = new_state(arrays), new_node_space(arrays)
    for node in range(4):
        state.work.room[node]["node"], state.work.room[node]["cpus"] = node, 4
    start_job(arrays, state, 0, 8.0, 4)  # its limit ends at 308
    state.live["status"][1], state.queue[0], state.counts[QUEUED] = PENDING, 1, 1
    backfill_cycle(arrays, state, space, 30.0)
    planned = [k for k in range(space.stretches[0]) if not space.avail[k].any()]
    assert [(space.begin_s[k], space.end_s[k]) for k in planned] == [(300, 540)]


def test_a_job_that_finds_its_nodes_behind_closed_partitions_closes_its_own():
    """After "Nodes required for job are DOWN, DRAINED or reserved …" no job behind it was tried (1,866 looks)."""
    few = '[[partitions]]\nname = "few"\nnodes = "n[1-2]"\nmemory_per_cpu_mb = 100\n'
    jobs = (
        job(1, 0.0, 600.0, tasks=4),
        job(2, 1.0, partitions=("few",), nodes_min=2, nodes_max=2, tasks=8),
        job(3, 2.0, nodes_min=4, nodes_max=4, tasks=16),
        job(4, 3.0, tasks=1, limit_s=7200.0),
    )
    schedule = play(site(few), *jobs)
    assert schedule.start_s[3] > schedule.start_s[2] > 600


@pytest.mark.parametrize(("limit", "states"), [
    ("max_submit = 2", ("ended", "ended", "rejected")), ("max_jobs = 1", ("ended", "ended", "ended")),
])  # fmt: skip
def test_a_limit_for_each_user_of_an_account_holds_for_the_users_below(limit, states):
    """With MaxSubmitJobs=6 at the account, a user's seventh job was refused: AssocMaxSubmitJobLimit."""
    extra = f'[[accounts]]\naccount = "phys"\n{limit}\n[[accounts]]\naccount = "phys"\nuser = "ann"\n'
    schedule = play(site(extra, enforce_limits=True), *(job(k, account="phys") for k in (1, 2, 3)))
    assert schedule.state == states
    assert (schedule.start_s[1] == 100) == ("max_jobs" in limit)


def test_the_preempted_job_with_the_fewest_nodes_goes_first():
    extra = '[[partitions]]\nname = "high"\npriority_tier = 5\nmemory_per_cpu_mb = 100\n'
    extra += '[preemption]\nkind = "partition"\nmode = "requeue"\n'
    wide, small = job(1, nodes_min=3, nodes_max=3, tasks=12), job(2, tasks=4)
    schedule = play(site(extra), wide, small, job(3, 20.0, tasks=4, partitions=("high",)))
    assert schedule.restarts.tolist() == [0, 1, 0]


def test_a_requeued_job_is_eligible_121_seconds_later():
    """25 preempted jobs on five sites: each was eligible 121 s after it had been requeued."""
    extra = '[[partitions]]\nname = "high"\npriority_tier = 5\nmemory_per_cpu_mb = 100\n'
    extra += '[preemption]\nkind = "partition"\nmode = "requeue"\n'
    whole = {"nodes_min": 4, "nodes_max": 4, "tasks": 16}
    schedule = play(site(extra), job(1, **whole), job(2, 20.0, 30.0, partitions=("high",), **whole))
    assert 141 <= schedule.start_s[0] <= 201


def test_a_job_ends_with_its_reservation():
    """A job of six minutes in a reservation of three was ended with it."""
    extra = '[[reservations]]\nname = "r"\nnodes = "n1"\nstart_s = 0\nend_s = 180\nusers = ["ann"]\n'
    assert play(site(extra), job(1, 0.0, 360.0, reservation="r")).end_s[0] == 180


def test_a_job_of_a_partition_that_forces_sharing_stays_apart_from_others():
    """With OverSubscribe=FORCE:1 beside a partition with NO, `node non-sharing`; the other way round they share."""
    extra = '[[partitions]]\nname = "forced"\nforces_sharing = true\nmemory_per_cpu_mb = 100\n'
    schedule = play(
        site(extra), job(1), job(2, 1.0, partitions=("forced",)), job(3, 5.0, tasks=3), job(4, 9.0, tasks=3)
    )
    assert schedule.nodes == (("n1",), ("n2",), ("n1",), ("n2",))


@pytest.mark.parametrize(("every", "state"), [(True, "refused"), (False, "ended")])
def test_with_enforcepartlimits_all_each_partition_of_a_job_must_let_it_in(every, state):
    extra = '[[partitions]]\nname = "short"\nmax_time = "5"\n'
    where = site(extra, enforce_partition_limits=True, enforce_every_partition=every)
    assert play(where, job(1, partitions=("short", "batch"))).state == (state,)


@pytest.mark.parametrize(("text", "every"), [("ALL", True), ("YES", False), ("ANY", False)])
def test_only_enforcepartlimits_all_asks_every_partition(tmp_path, text, every):
    """With YES, a job of 10 minutes for partitions of 8 and 30 was taken."""
    lines = f"EnforcePartLimits={text}\nNodeName=n1 CPUs=4\nPartitionName=a Nodes=n1\n"
    (tmp_path / "slurm.conf").write_text(lines)
    assert read_site(tmp_path).enforce_every_partition == every


def test_the_size_factor_counts_the_nodes_that_a_job_names_not_those_that_its_tasks_need():
    """On 14 nodes with 164 CPUs and a weight of 5000, `-n 6 --ntasks-per-node=2` had 270."""
    kinds = (("a", 3, 12), ("b", 4, 4), ("c", 7, 16))
    nodes = "".join(f'[[nodes]]\nnames = "{k}[1-{n}]"\ncores = {c}\nmemory = "48000"\n' for k, n, c in kinds)
    where = site("[priority]\njob_size = 5000\n", nodes)
    arrays = prepare(where, SlurmLog((job(1, tasks=6, tasks_per_node=2),))).arrays
    assert int(arrays.entries["priority"][0]) == 270


def test_least_loaded_nodes_are_sought_among_those_of_the_lowest_weight():
    heavy = '[[nodes]]\nnames = "a1"\ncores = 16\nmemory = "8000"\nweight = 5\n'
    where = site(nodes=SITE + heavy)
    where = replace(where, partitions=(replace(where.partitions[0], least_loaded=True),))
    assert play(where, job(1, tasks=2)).nodes[0] == ("n1",)


def test_the_least_loaded_node_has_the_largest_part_of_its_cpus_free():
    """With LLN, `-n 7` ran on two idle nodes of 4 cores, not on one with 15 of 16 cores free."""
    big = '[[nodes]]\nnames = "a1"\ncores = 16\nmemory = "8000"\n'
    where = site(nodes=SITE + big)
    where = replace(where, partitions=(replace(where.partitions[0], least_loaded=True),))
    assert play(where, job(1, nodelist="a1"), job(2, 1.0, tasks=7)).nodes[1] == ("n1", "n2")


def test_aftercorr_waits_for_the_same_task_of_the_other_array():
    first = [job(k + 1, 0.0, 100.0 * (k + 1), array=1) for k in range(2)]
    second = [job(k + 3, 0.0, 10.0, array=3, dependency="aftercorr:1") for k in range(2)]
    assert play(site(), *first, *second).start_s[2:].tolist() == pytest.approx([100, 200], abs=30)


def test_the_other_parts_of_a_heterogeneous_job_are_reported():
    line = "-dt 0 -e submit_batch_job | -sim-walltime 5 --uid=ann -n 4 : -n 2 -p gpu job.sh"
    log = parse_events(line, "x.events")
    assert log.jobs[0].tasks == 4
    assert log.report.of("not modelled") == {"heterogeneous jobs: only their first part is read": 1}


def test_an_exclusive_job_needs_memory_for_all_cpus_of_its_node():
    """`-n 3 -c 4 --mem-per-cpu=4000 --exclusive` was refused where a node has less memory than that for each CPU."""
    jobs = (job(1, exclusive=True, memory_per_cpu_mb=2001.0), job(2, exclusive=True, memory_per_cpu_mb=2000.0))
    assert play(site(), *jobs).state == ("refused", "ended")


@pytest.mark.parametrize(("options", "gpus", "exact"), [
    ("-N 1 --gpus=2", 2, True), ("-n 1 --gpus=2", 2, True), ("-N 2 --gpus=a100:4", 2, True),
    ("-N 2 --gpus=a100:2,v100:4", 3, True), ("-N 2 --ntasks-per-node=2 --gpus-per-task=1", 2, True),
    ("-n 3 --ntasks-per-node=1 --gpus-per-task=1", 1, True), ("-n 12 --gpus=2", 1, False),
    ("-N 2-3 -n 6 --gpus=3", 1, False),
])  # fmt: skip
def test_gpus_of_a_job_are_shared_by_its_nodes_or_each_has_one(options, gpus, exact):
    """`-n 12 --gpus=2` and `-N 2-3 -n 6 --gpus=3` had one GPU on each of three nodes."""
    log = parse_events(f"-dt 0 -e submit_batch_job | -sim-walltime 5 --uid=ann {options} job.sh", "x.events")
    assert sum(gres.count for gres in log.jobs[0].gres) == gpus
    assert bool(log.report.of("assumed")) == (not exact)


def test_sacct_prints_all_memory_of_a_node_as_that_of_the_first_of_its_partition():
    """Without a default, ReqMem was 16000M for jobs on nodes of 8000 MB: a1 has 16000."""
    nodes = SITE.replace("n[1-4]", "n[2-4]") + '[[nodes]]\nnames = "n1"\ncores = 4\nmemory = "4000"\n'
    where = site(nodes=nodes)
    where = replace(where, partitions=(replace(where.partitions[0], memory_per_cpu_mb=0.0),))
    jobs = [job(k, k, memory_per_node_mb=4000.0, memory_as_recorded=True, exclude="n1") for k in (1, 2)]
    assert play(where, *jobs).nodes == (("n2",), ("n3",))
    asked = [replace(each, memory_as_recorded=False) for each in jobs]
    assert play(where, *asked).nodes == (("n2",), ("n2",))


def test_sbatch_gives_a_job_no_more_nodes_than_tasks():
    """`-N 3 -n 2` had two nodes."""
    log = parse_events("-dt 0 -e submit_batch_job | -sim-walltime 5 --uid=ann -N 3 -n 2 job.sh", "x.events")
    assert (log.jobs[0].nodes_min, log.jobs[0].nodes_max) == (2, 2)


def test_a_job_of_fewer_nodes_than_its_partition_asks_for_never_starts():
    """With MinNodes=2, `-N 1 -n 2` waited (PartitionNodeLimit), and `-n 2` had two nodes."""
    wide = '[[partitions]]\nname = "wide"\nmin_nodes = 2\nmemory_per_cpu_mb = 100\n'
    one, free = job(1, tasks=2, nodes_min=1, nodes_max=1), job(2, tasks=2)
    schedule = play(site(wide), *(replace(each, partitions=("wide",)) for each in (one, free)))
    assert (schedule.state, len(schedule.nodes[1])) == (("refused", "ended"), 2)


def test_every_job_of_a_mixed_queue_starts_and_no_node_holds_more_than_it_has():
    rng = np.random.default_rng(5)
    jobs = [
        job(k + 1, 10.0 * k, float(rng.integers(10, 300)), tasks=int(rng.integers(1, 8)), nodes_min=1,
            nodes_max=int(rng.integers(1, 5)))
        for k in range(60)
    ]  # fmt: skip
    schedule = play(site(), *jobs)
    assert set(schedule.state) <= {"ended", "refused"}
    for moment in np.unique(schedule.start_s[np.isfinite(schedule.start_s)]):
        assert schedule.cpus[(schedule.start_s <= moment) & (schedule.end_s > moment)].sum() <= 16
