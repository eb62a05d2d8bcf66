"""A real Slurm's queue, asked about, and then watched: did its jobs start when we said?"""

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
USED = 0.1  # of its limit, by every job of the past and of the queue
#: (cpus, minutes asked for) on eight CPUs, in the order of submission
QUEUE = ((6, 2), (4, 1), (2, 2), (8, 1), (2, 1), (4, 1), (1, 2), (6, 1))
ROUNDED_S = 2.0  # squeue cuts what a job has run to whole seconds, and sacct when it started
TURN_S = 6.0  # more than Slurm takes between the end of a job and the start of the next, on a busy machine


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Eight CPUs that sleeping jobs do not need, first come first served: the backfilling thread never gets a turn."""
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
    """What sacct says once so many jobs have ended."""
    give_up_s = time.monotonic() + 180
    while time.monotonic() < give_up_s:
        text = slurm.run("sacct", "--allusers", "--allocations", "--parsable2", "--format", COLUMNS)
        if text.count("COMPLETED") >= ended:
            return text
        time.sleep(0.5)
    pytest.fail(f"{ended} jobs did not end:\n{text}")


@pytest.mark.real
@pytest.mark.slow
def test_jobs_start_when_the_answer_said(slurm: Slurm, tmp_path: Path, twin) -> None:
    # As long as the longest job of the queue: half a second that Slurm took for a job of one minute would be counted
    # as a whole one for a job of two, and the answer be late from wave to wave.
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
    asked_s, (said,) = document["asked_s"], document["scenarios"]
    assert set(said["jobs"]) < set(ids)

    rows = [line.split("|") for line in accounting(slurm, ended=4 + len(QUEUE)).splitlines()[1:]]
    did_s = {row[0]: datetime.fromisoformat(row[5]).timestamp() - asked_s for row in rows}
    waves = sorted(set(said["start_s"]))
    assert len(waves) >= 4
    apart_s = []
    for wave, start_s in enumerate(waves):
        together = [did_s[job] for job, said_s in zip(said["jobs"], said["start_s"], strict=True) if said_s == start_s]
        apart_s.append(max(together) - start_s)
        # Slurm needs a moment to end a job and to look at its queue: what we call a wave comes late, never before.
        assert min(together) > start_s - ROUNDED_S, (wave, said, did_s)
        assert max(together) - min(together) <= ROUNDED_S, (wave, said, did_s)
    assert max(np.diff(apart_s, prepend=0.0)) < TURN_S, (apart_s, said, did_s)
