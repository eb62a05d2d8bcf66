"""Training on a Ray cluster: the curve of one process, also when a worker is killed at work."""

import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from clustertwin.workload.jobs import Jobs
from clustertwin.workload.rl.evolve import EvolveSettings
from clustertwin.workload.rl.train import TrainSettings, train
from clustertwin.workload.rl.worth import Rules
from clustertwin.workload.simulator.intake import take_in

SETTINGS = TrainSettings(
    ppo_rounds=4, evolve_rounds=3, length=128, evolve_length=128, judged_on=1, evolve=EvolveSettings(pairs=2)
)


def kill_one_at_work(raylets: set[int], killed: list[int], over: threading.Event) -> None:
    """Kill the first worker of these raylets that is seen gathering a rollout, before it is over."""
    while not over.is_set():
        for raylet in raylets:
            for worker in psutil.Process(raylet).children(recursive=True):
                try:
                    if "ray::gather" in " ".join(worker.cmdline()):
                        worker.kill()
                        killed.append(worker.pid)
                        return
                except psutil.NoSuchProcess:
                    continue
        time.sleep(0.005)


@pytest.mark.real
@pytest.mark.slow
def test_two_ray_nodes_give_the_curve_of_one_process_though_a_worker_is_killed(two_nodes, tmp_path: Path):
    rng = np.random.default_rng(0)
    run_s = rng.lognormal(4, 2, 600).round() + 1
    jobs = Jobs.build(np.cumsum(rng.exponential(90, 600)), run_s, request_s=run_s, cpus=2 ** rng.integers(0, 5, 600))
    load, rules = take_in(jobs, 16).load, Rules(16)
    raylets = {info.process.pid for node in two_nodes.list_all_nodes() for info in node.all_processes["raylet"]}
    killed: list[int] = []
    over = threading.Event()
    killer = threading.Thread(target=kill_one_at_work, args=(raylets, killed, over), daemon=True)
    killer.start()
    there = train(load, rules, SETTINGS, tmp_path / "ray.safetensors", engine="ray")
    over.set()
    killer.join()
    here = train(load, rules, SETTINGS, tmp_path / "here.safetensors")
    assert killed
    assert [(r.stage, r.number, r.ratio) for r in there.rounds] == [(r.stage, r.number, r.ratio) for r in here.rounds]
    assert (there.weights == here.weights).all()
