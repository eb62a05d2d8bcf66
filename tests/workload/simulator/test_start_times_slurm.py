"""The predicted start times of a real Slurm queue, compared with the times at which its jobs then start."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from tests.slurm import Slurm, reason_to_skip, slurm_cluster

COLUMNS = "JobIDRaw,JobID,User,State,Submit,Start,End,ElapsedRaw,TimelimitRaw,ReqCPUS,AllocCPUS,AllocNodes"
USED = 0.1  # the share of its limit that every job uses, in the past and in the queue
#: (CPUs, limit in minutes) on eight CPUs, in the order of submission
QUEUE = ((6, 2), (4, 1), (2, 2), (8, 1), (2, 1), (4, 1), (1, 2), (6, 1))
ROUNDED_S = 2.0  # squeue truncates elapsed times to whole seconds, and sacct truncates start times
TURN_S = 6.0  # longer than Slurm needs between the end of a job and the next start, on a busy machine


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Eight CPUs for sleeping jobs, first come first served: the backfill thread runs every ten minutes only."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("slurm")
    with slurm_cluster(directory, {"n1": tuple(range(4)), "n2": tuple(range(4, 8))}) as cluster:
        settings = directory / "slurm.conf"
        text = settings.read_text()
        assert "bf_interval=1" in text
        settings.write_text(text.replace("bf_interval=1", "bf_interval=600"))
        cluster.run("scontrol", "reconfigure")
        yield cluster


def submit(slurm: Slurm, cpus: int, minutes: int) -> str:
    asked = (f"--ntasks={cpus}", f"--time={minutes}", "--mem=1", "--output=/dev/null")
    return slurm.run("sbatch", "--parsable", *asked, f"--wrap=sleep {60 * minutes * USED}").strip()


def accounting(slurm: Slurm, ended: int) -> str:
    """The output of sacct once this number of jobs has ended."""
    give_up_s = time.monotonic() + 180
    while time.monotonic() < give_up_s:
        text = slurm.run("sacct", "--allusers", "--allocations", "--parsable2", "--format", COLUMNS)
        if text.count("COMPLETED") >= ended:
            return text
        time.sleep(0.5)
    pytest.fail(f"{ended} jobs did not end:\n{text}")


@pytest.mark.real
@pytest.mark.slow
def test_jobs_start_at_the_predicted_times(slurm: Slurm, tmp_path: Path, twin) -> None:
    # The past jobs are as long as the longest job of the queue. Slurm's overhead is part of their run times: half a
    # second for a job of one minute would count as a second for a job of two minutes.
    for _ in range(4):
        submit(slurm, 2, 2)
    past = tmp_path / "past.sacct"
    past.write_text(accounting(slurm, ended=4))
    ids = [submit(slurm, cpus, minutes) for cpus, minutes in QUEUE]
    while "RUNNING" not in slurm.run("squeue", "--noheader", "--format=%T"):
        time.sleep(0.2)
    options = ("--from-slurm", "--past", str(past), "--load", "0", "--policy", "fcfs", "--backfill", "none", "--json")
    done = twin("sched", "whatif", *options, env=slurm.env)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    asked_s, (predicted,) = document["asked_s"], document["scenarios"]
    assert set(predicted["jobs"]) < set(ids)

    rows = [line.split("|") for line in accounting(slurm, ended=4 + len(QUEUE)).splitlines()[1:]]
    actual_s = {row[0]: datetime.fromisoformat(row[5]).timestamp() - asked_s for row in rows}
    waves = sorted(set(predicted["start_s"]))
    assert len(waves) >= 4
    late_s = []
    for wave, start_s in enumerate(waves):
        pairs = zip(predicted["jobs"], predicted["start_s"], strict=True)
        starts_s = [actual_s[job] for job, predicted_s in pairs if predicted_s == start_s]
        late_s.append(max(starts_s) - start_s)
        # Slurm needs time to end a job and to look at its queue, so a wave of starts comes late, never early.
        assert min(starts_s) > start_s - ROUNDED_S, (wave, predicted, actual_s)
        assert max(starts_s) - min(starts_s) <= ROUNDED_S, (wave, predicted, actual_s)
    assert max(np.diff(late_s, prepend=0.0)) < TURN_S, (late_s, predicted, actual_s)
