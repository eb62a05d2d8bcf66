"""Training on a Ray cluster gives the same curve as one process, even if a worker is killed."""

import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from clustertwin.workload.jobs import Jobs
from clustertwin.workload.rl.evolution_strategies import EvolutionSettings
from clustertwin.workload.rl.policy_training import TrainSettings, train
from clustertwin.workload.rl.training_sequences import TrainingData
from clustertwin.workload.simulator import SchedulingRules
from clustertwin.workload.simulator.admission import admit

SETTINGS = TrainSettings(
    ppo_rounds=4, evolve_rounds=3, ppo_length=128, evolve_length=128, validation_sequences=1,
    evolve=EvolutionSettings(pairs=2),
)  # fmt: skip


def kill_a_busy_worker(raylets: set[int], killed: list[int], over: threading.Event) -> None:
    """Kill the first worker of these raylets that collects a rollout."""
    while not over.is_set():
        for raylet in raylets:
            for worker in psutil.Process(raylet).children(recursive=True):
                try:
                    if "ray::collect" in " ".join(worker.cmdline()):
                        worker.kill()
                        killed.append(worker.pid)
                        return
                except psutil.NoSuchProcess:
                    continue
        time.sleep(0.005)


@pytest.mark.real
@pytest.mark.slow
def test_two_ray_nodes_give_the_curve_of_one_process_even_if_a_worker_is_killed(two_nodes, tmp_path: Path):
    rng = np.random.default_rng(0)
    run_s = rng.lognormal(4, 2, 600).round() + 1
    jobs = Jobs.build(np.cumsum(rng.exponential(90, 600)), run_s, request_s=run_s, cpus=2 ** rng.integers(0, 5, 600))
    data, rules = TrainingData(admit(jobs, 16).records), SchedulingRules(16)
    raylets = {info.process.pid for node in two_nodes.list_all_nodes() for info in node.all_processes["raylet"]}
    killed: list[int] = []
    over = threading.Event()
    killer = threading.Thread(target=kill_a_busy_worker, args=(raylets, killed, over), daemon=True)
    killer.start()
    on_ray = train(data, rules, SETTINGS, tmp_path / "ray.safetensors", engine="ray")
    over.set()
    killer.join()
    here = train(data, rules, SETTINGS, tmp_path / "here.safetensors")
    assert killed
    assert [(r.stage, r.number, r.ratio) for r in on_ray.rounds] == [(r.stage, r.number, r.ratio) for r in here.rounds]
    assert (on_ray.weights == here.weights).all()
