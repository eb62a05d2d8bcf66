"""From the accounting of a real Slurm to a synthetic log and its report, through the commands."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.slurm import Slurm, reason_to_skip, slurm_cluster

from clustertwin.workload.formats import read

COLUMNS = (
    "JobIDRaw,JobID,User,Account,Partition,State,Submit,Start,End,ElapsedRaw,TimelimitRaw,"
    "ReqCPUS,AllocCPUS,AllocNodes,ReqMem,AllocTRES"
)


ARRAY = 70


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Two nodes configured with sixteen CPUs each: sleeping jobs need no real CPU, so an array ends in seconds."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    nodes = {"n1": tuple(range(16)), "n2": tuple(range(16, 32))}
    with slurm_cluster(tmp_path_factory.mktemp("slurm"), nodes) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def accounting(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of sacct after an array, a failed job and a cancelled one."""
    for part in range(10):
        limit, pause = f"--time={1 + part % 3}", f"--wrap=sleep {1 + part % 2}.1"
        slurm.run("sbatch", f"--array=1-{ARRAY // 10}", limit, "--output=/dev/null", "--job-name=a|pipe", pause)
    slurm.run("sbatch", "--time=1", "--output=/dev/null", "--wrap=exit 3")
    gone = slurm.run("sbatch", "--parsable", "--time=1", "--output=/dev/null", "--wrap=sleep 30").strip()
    slurm.run("scancel", gone)
    for _ in range(120):
        text = slurm.run("sacct", "--allusers", "--allocations", "--parsable2", "--format", COLUMNS)
        states = [line.split("|")[5].split()[0] for line in text.splitlines()[1:]]
        if len(states) >= ARRAY + 2 and not {"PENDING", "RUNNING", "COMPLETING"} & set(states):
            break
        time.sleep(0.5)
    path = tmp_path_factory.mktemp("accounting") / "jobs.sacct"
    path.write_text(text)
    return path


@pytest.mark.real
@pytest.mark.slow
def test_sacct_becomes_a_log_a_synthetic_log_and_a_report(accounting: Path, tmp_path: Path, twin) -> None:
    done = twin("trace", "convert", accounting, tmp_path / "jobs.swf", "--json")
    assert done.returncode == 0, done.stderr
    jobs = read(tmp_path / "jobs.swf")
    assert len(jobs) == ARRAY + 2
    assert (jobs.status == 1).sum() == ARRAY
    assert (jobs.status == 0).sum() == 1
    assert (jobs.status == 5).sum() == 1

    clean = twin("trace", "clean", tmp_path / "jobs.swf", tmp_path / "clean.swf")
    assert clean.returncode == 0, clean.stderr
    generated = twin(
        "trace", "generate", tmp_path / "clean.swf", "--jobs", "80", "--seed", "1", "--out", tmp_path / "syn.swf"
    )
    assert generated.returncode == 0, generated.stderr
    assert len(read(tmp_path / "syn.swf")) == 80

    report = twin(
        "trace",
        "compare",
        tmp_path / "clean.swf",
        tmp_path / "syn.swf",
        "--procs",
        "2",
        "--out",
        tmp_path / "report",
        "--json",
    )
    assert report.returncode == 0, report.stderr
    assert json.loads(report.stdout)
    assert list((tmp_path / "report").glob("*.html"))
