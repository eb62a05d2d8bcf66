"""squeue and sprio of a real Slurm with GPUs, features and an array, as a site's live queue reads them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import slurm as real_slurm
from tests.slurm import Slurm, reason_to_skip, slurm_cluster

from clustertwin.workload.simulator.forecast.live_start import StartQuestion, parse_like
from clustertwin.workload.slurm.live.site_change import SPRIO_COMMAND, SiteChange, changed_queue, parse_factors
from clustertwin.workload.slurm.live.site_queue import SiteQueue, parse_site_queue, site_command
from clustertwin.workload.slurm.live.site_start import forecast_site
from clustertwin.workload.slurm.site.quantities import Gres
from clustertwin.workload.slurm.site.site_directory import read_site

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Two nodes of four CPUs; n2 has two GPUs, which are empty files. Priorities come from the job's age and size."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    write = real_slurm._write_configuration

    def with_gpus(directory: Path, *rest: object) -> None:
        write(directory, *rest)
        conf = directory / "slurm.conf"
        more = {"NodeName=n1": " Feature=slow", "NodeName=n2": " Feature=fast Gres=gpu:2"}
        lines = [line + more.get(line.split()[0], "") for line in conf.read_text().splitlines()]
        weights = ["PriorityType=priority/multifactor", "PriorityWeightAge=1000", "PriorityWeightJobSize=500"]
        conf.write_text("\n".join(["GresTypes=gpu", *weights, *lines]) + "\n")
        for index in range(2):
            (directory / f"gpu{index}").touch()
        (directory / "gres.conf").write_text(f"AutoDetect=off\nNodeName=n2 Name=gpu File={directory}/gpu[0-1]\n")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(real_slurm, "_write_configuration", with_gpus)
        nodes = {"n1": tuple(range(4)), "n2": tuple(range(4, 8))}
        with slurm_cluster(tmp_path_factory.mktemp("slurm"), nodes) as cluster:
            yield cluster


@pytest.fixture(scope="module")
def queue(slurm: Slurm) -> SiteQueue:
    """Both nodes are taken for 30 minutes; a job with a GPU, an array of two tasks and a held job wait."""

    def submit(*asked: str) -> str:
        return slurm.run("sbatch", "--parsable", "--output=/dev/null", *asked, "--wrap=sleep 600").strip()

    submit("--ntasks=4", "--time=30", "--gres=gpu:2", "--constraint=fast")
    submit("--ntasks=4", "--time=30")
    give_up_s = time.monotonic() + 60
    while slurm.run("squeue", "--noheader", "--states=RUNNING", "--format=%i").count("\n") < 2:
        assert time.monotonic() < give_up_s
        time.sleep(0.2)
    submit("--ntasks=1", "--time=10", "--gres=gpu:1", "--constraint=fast|slow")
    submit("--ntasks=4", "--time=10", "--array=0-1", "--exclusive")
    submit("--ntasks=1", "--hold")
    return parse_site_queue(slurm.run(*site_command("|x|")), "|x|")


def test_a_real_queue_tells_nodes_gpus_features_and_priorities(queue: SiteQueue):
    assert {live.nodes for live in queue.running} == {("n1",), ("n2",)}
    by_nodes = {live.nodes: live.job for live in queue.running}
    assert by_nodes["n2",].gres == (Gres("gpu", "", 2),)
    assert by_nodes["n1",].gres == ()
    assert (by_nodes["n1",].tasks, by_nodes["n1",].limit_s, by_nodes["n1",].partitions) == (4, 1800.0, ("debug",))
    assert queue.held == 1
    gpu = next(live for live in queue.waiting if live.job.gres)
    assert (gpu.job.gres, gpu.job.constraint) == ((Gres("gpu", "", 1),), "fast|slow")
    tasks = [live for live in queue.waiting if live.job.array]
    assert len(tasks) == 2
    assert all(live.job.exclusive and live.priority > 0 for live in tasks)
    assert not gpu.job.exclusive


def test_factors_of_a_real_sprio_move_priorities_by_the_change_of_a_weight(slurm: Slurm, queue: SiteQueue):
    give_up_s = time.monotonic() + 60
    while len(factors := parse_factors(slurm.run(*SPRIO_COMMAND))) < 2:  # it lists a new array with some delay
        assert time.monotonic() < give_up_s, slurm.run(*SPRIO_COMMAND) + slurm.run(*site_command("|"))
        time.sleep(0.5)
    site = read_site(slurm.directory / "slurm.conf")
    changed, unknown = changed_queue(queue, site, SiteChange({"job_size": 2500.0}), factors)
    assert unknown == 0
    for before, after in zip(queue.waiting, changed.waiting, strict=True):
        size = factors[before.name.partition("_")[0]][2]
        assert 0 < size <= 1
        assert after.priority == pytest.approx(before.priority + 2000 * size, abs=1)


def test_a_job_with_a_gpu_is_forecast_to_wait_for_the_node_that_has_them(slurm: Slurm, queue: SiteQueue):
    """Both nodes are free in half an hour by limits; a drained n2 would leave no GPU at all."""
    site = read_site(slurm.directory / "slurm.conf")
    starts = forecast_site(site, queue, None, StartQuestion())
    assert len(starts.answers) == 3
    assert all(answer.p50_s > 1500 for answer in starts.answers)
    (answer,) = forecast_site(site, queue, None, StartQuestion(like=parse_like("1 node, 10 min, 2 gpus"))).answers
    assert answer.p50_s > 1500
