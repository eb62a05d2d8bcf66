"""Starts of a live queue on a site: running jobs keep their nodes, GPUs are really asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clustertwin.core.errors import InputError, SettingsError
from clustertwin.core.job_health import JobHealth
from clustertwin.workload.simulator.forecast.live_start import StartQuestion, parse_like
from clustertwin.workload.simulator.forecast.squeue import parse_squeue
from clustertwin.workload.simulator.forecast.start_distribution import FutureSettings
from clustertwin.workload.slurm.joblog.job_table import SlurmJob, SlurmLog
from clustertwin.workload.slurm.live.site_queue import parse_site_queue
from clustertwin.workload.slurm.live.site_start import SiteFuture, SiteStarts, forecast_site, with_like
from clustertwin.workload.slurm.site.quantities import Gres
from clustertwin.workload.slurm.site.site_directory import parse_site
from clustertwin.workload.slurm.site.slurm_site import SlurmSite

GPU_NODES = """
[[nodes]]
names = "g[1-2]"
cores = 4
memory = "8000"
gres = "gpu:v100:2"
"""
PARTITIONS = """
[[partitions]]
name = "batch"
default = true
nodes = "n[1-2]"
max_time = "1-0"
"""
GPU_PARTITION = """
[[partitions]]
name = "gpu"
nodes = "g[1-2]"
max_time = "1-0"
"""


def site(gpus: bool = True) -> SlurmSite:
    nodes = 'name = "small"\n[[nodes]]\nnames = "n[1-2]"\ncores = 4\nmemory = "8000"\n'
    return parse_site(nodes + (GPU_NODES if gpus else "") + PARTITIONS + (GPU_PARTITION if gpus else ""), "site.toml")


def line(name: str, state: str, limit: str = "1:00:00", elapsed: str = "0:00", **told: str) -> str:
    told = {"cpus": "4", "nodes": "1", "partition": "batch", "priority": "100", "gres": "N/A", "hosts": "",
            "reason": "Resources", "sharing": "OK", "features": "(null)"} | told  # fmt: skip
    return "|".join(
        [name, "ann", state, told["cpus"], told["nodes"], limit, elapsed, told["reason"], told["partition"], "normal",
         "(null)", told["priority"], "100M", told["gres"], told["hosts"], told["sharing"], told["features"]]
    )  # fmt: skip


#: The GPU node g1 is taken for 30 minutes and g2 for 50; both nodes of the partition batch are free.
QUEUE = "\n".join([
    line("1", "RUNNING", "1:00:00", "30:00", partition="gpu", gres="gres:gpu:2", hosts="g1"),
    line("2", "RUNNING", "1:00:00", "10:00", partition="gpu", gres="gres:gpu:2", hosts="g2"),
])  # fmt: skip


def ask(like: str, where: SlurmSite, queue: str = QUEUE) -> SiteStarts:
    return forecast_site(where, parse_site_queue(queue), None, StartQuestion(like=parse_like(like)))


def test_a_line_of_squeue_tells_nodes_gres_priority_and_a_constraint_with_bars():
    queue = parse_site_queue(line("7_3", "RUNNING", hosts="g[1-2]", nodes="2", gres="gres/gpu:v100:1", features="a|b"))
    (live,) = queue.running
    assert live.nodes == ("g1", "g2")
    assert live.job.gres == (Gres("gpu", "v100", 1),)
    assert (live.priority, live.job.array, live.job.constraint) == (100, 7, "a|b")
    held = parse_site_queue(line("8", "PENDING", reason="JobHeldUser"))
    assert (held.held, held.waiting) == (1, ())


@pytest.mark.parametrize("text", ["1|ann|RUNNING", line("1", "RUNNING", cpus="x"), line("1", "RUNNING", limit="soon")])
def test_a_line_that_is_not_squeues_is_refused_with_its_number(text: str):
    with pytest.raises(InputError, match="squeue:1"):
        parse_site_queue(text)


@pytest.mark.parametrize(
    "reason", ["(launch failed requeued held)", "launch_failed_requeued_held", "JobHoldMaxRequeue"]
)
def test_a_job_that_is_held_after_a_failed_start_does_not_wait_for_nodes(reason: str):
    queue = parse_site_queue(line("3", "PENDING", reason=reason))
    assert (queue.held, queue.waiting) == (1, ())
    assert parse_squeue(f"3|ann|PENDING|4|1|1:00:00|0:00|{reason}").held == 1


def test_gpus_in_like_ask_for_the_partition_and_the_nodes_that_have_them():
    (live,) = with_like(site(), parse_site_queue(""), parse_like("2 nodes, 2 h, gpu:v100:2")).waiting
    assert live.job.partitions == ("gpu",)
    assert live.job.gres == (Gres("gpu", "v100", 2),)
    assert live.job.exclusive
    (live,) = with_like(site(), parse_site_queue(""), parse_like("2 nodes, 2 h")).waiting
    assert live.job.partitions == ("batch",)


@pytest.mark.parametrize(
    ("like", "gpus", "reason"),
    [
        ("1 node, 2 h, gpu", False, "no node of small has GPUs"),
        ("1 node, 2 h, gpu:a100", True, "no node of small has GPUs of type a100"),
        ("1 node, 2 h, partition huge", True, "there is no partition huge"),
    ],
)
def test_what_a_site_lacks_is_refused_with_a_sentence(like: str, gpus: bool, reason: str):
    with pytest.raises(SettingsError, match=reason):
        with_like(site(gpus), parse_site_queue(""), parse_like(like))


@pytest.mark.slow
def test_a_job_with_gpus_waits_for_a_gpu_node_and_one_without_starts_at_once():
    assert ask("1 node, 2 h", site()).answers[0].p50_s == 0
    assert ask("1 node, 2 h, gpu", site()).answers[0].p50_s == pytest.approx(1800, abs=60)  # g1 is free then
    assert ask("2 nodes, 2 h, 2 gpus", site()).answers[0].p50_s == pytest.approx(3000, abs=60)  # and g2


@pytest.mark.slow
def test_more_gpus_than_a_node_has_are_refused_as_slurm_would():
    with pytest.raises(SettingsError, match="Slurm would refuse a job like this: no nodes of the partition"):
        ask("1 node, 2 h, 3 gpus", site())


@pytest.mark.slow
def test_waiting_jobs_start_in_the_order_of_slurms_priorities():
    full = [line(str(k), "RUNNING", "30:00", hosts=f"n{k}") for k in (1, 2)]
    wide = {"cpus": "8", "nodes": "2"}
    jobs = [line("4", "PENDING", priority="500", **wide), line("3", "PENDING", priority="20", **wide)]
    starts = forecast_site(site(), parse_site_queue("\n".join(full + jobs)), None, StartQuestion())
    assert [answer.job for answer in starts.answers] == ["4", "3"]
    assert starts.answers[0].p50_s == pytest.approx(1800, abs=60)
    assert starts.answers[1].p50_s == pytest.approx(1800 + 3600, abs=120)
    with pytest.raises(SettingsError, match="job 9 does not wait"):
        forecast_site(site(), parse_site_queue("\n".join(full)), None, StartQuestion(job="9"))


@pytest.mark.slow
def test_run_times_come_from_the_past_of_the_same_user():
    """Jobs of ann with this limit ran for ten minutes: the job that has run for five ends in five, not in 55."""
    past = SlurmLog(
        tuple(
            SlurmJob(k + 1, 60.0 * k, 600.0, "ann", limit_s=3600.0, nodes_min=1, tasks=4, start_s=60.0 * k,
                     end_s=60.0 * k + 600)
            for k in range(20)
        )
    )  # fmt: skip
    full = [line(str(k), "RUNNING", "1:00:00", "5:00", hosts=f"n{k}") for k in (1, 2)]
    queue = parse_site_queue("\n".join([*full, line("3", "PENDING")]))
    settings = SiteFuture(FutureSettings(futures=3), hours=0.0)
    (answer,) = forecast_site(site(), queue, past, StartQuestion(), settings).answers
    assert answer.p50_s == pytest.approx(300, abs=60)
    assert answer.by_limits_s == pytest.approx(3300, abs=60)
    assert answer.basis == "user, limit and size"
    hangs = replace(settings, known={str(k): JobHealth(str(k), True, 1.0) for k in (1, 2)})
    (answer,) = forecast_site(site(), queue, past, StartQuestion(), hangs).answers
    assert answer.p50_s == pytest.approx(3300, abs=60)
