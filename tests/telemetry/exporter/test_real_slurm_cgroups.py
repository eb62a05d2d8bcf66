"""A real Slurm gives its jobs cgroups, and the exporter finds them. Every other test of cgroups reads fixture trees."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.slurm import Slurm, reason_to_skip, slurm_cluster

V1 = Path("/sys/fs/cgroup/cpuset")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    if reason := reason_to_skip():
        pytest.skip(reason)
    if not (V1 / "cpuset.cpus").exists():
        pytest.skip("no real cgroups: this host has no cgroup v1 with cpusets, and Slurm's v2 plug-in needs systemd")
    with slurm_cluster(tmp_path_factory.mktemp("slurm"), {"n1": (0, 1)}, cgroups=True) as running:
        yield running


def scrape() -> str:
    command = [sys.executable, "-m", "clustertwin", "exporter", "--once"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def submit(cluster: Slurm, *options: str) -> str:
    """Submit a job that sleeps, and wait until its cgroup is there."""
    words = ("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", "sleep 300")
    job = cluster.run(*words).strip()
    for _ in range(300):
        if any(V1.glob(f"slurm*/uid_*/job_{job}/step_batch")):
            return job
        time.sleep(0.1)
    raise AssertionError(cluster.run("squeue"))


@pytest.mark.real
@pytest.mark.slow
def test_a_job_of_a_real_slurm_is_found_with_its_own_cpu_owner_and_memory(cluster):
    first, second = submit(cluster, "-n", "1", "--mem=100"), submit(cluster, "-n", "1", "--mem=100")
    text = scrape()
    cpus = {
        job: {
            line.split('cpu="')[1][0]
            for line in text.splitlines()
            if f'allocated{{manager="slurm",jobid="{job}"' in line
        }
        for job in (first, second)
    }
    assert [len(own) for own in cpus.values()] == [1, 1]
    assert cpus[first] != cpus[second]
    assert f'twin_job_owner_uid{{manager="slurm",jobid="{first}"}} 0' in text
    memory = next(
        line for line in text.splitlines() if line.startswith(f'twin_job_memory_bytes{{manager="slurm",jobid="{first}"')
    )
    assert float(memory.split()[-1]) > 0
    cluster.run("scancel", first, second)
