"""A campaign through sbatch on a real Slurm of two nodes: its labels are what accounting says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.slurm import Slurm

from clustertwin.telemetry.recording import Recording


@pytest.mark.real
@pytest.mark.slow
def test_labels_are_what_accounting_says(slurm: Slurm, tmp_path: Path) -> None:
    nodes = " ".join(f"{node}={','.join(map(str, cpus))}" for node, cpus in slurm.node_cpus.items())
    command = [sys.executable, "-m", "clustertwin", "campaign", "run", "--out", str(tmp_path / "c"), "--rounds", "1"]
    kinds = [word for kind in ("np", "mpi-N", "throttled") for word in ("--type", kind)]
    options = ["--job-seconds", "3", "4", "--window-s", "2", "--via", "slurm", "--nodes", nodes, "--json", *kinds]
    done = subprocess.run([*command, *options], env=slurm.env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr

    recording = Recording.open(tmp_path / "c" / "round-000")
    assert recording.nodes == slurm.node_cpus
    labelled = {(span.job, span.node) for span in recording.spans}
    accounted = set()
    slurm.env["SLURM_TIME_FORMAT"] = "%s"
    rows = slurm.run("sacct", "-X", "-n", "-P", "-o", "JobID,JobName,NodeList,AllocCPUS,Start,End,State").splitlines()
    for job, name, where, cpus, start, end, state in (row.split("|") for row in rows):
        spans = [span for span in recording.spans if span.job == job]
        assert state == "COMPLETED", (name, state)
        assert sum(len(span.cpus) for span in spans) == int(cpus)
        assert {(span.start_s, span.end_s) for span in spans} == {(float(start), float(end))}
        accounted |= {(job, node) for node in slurm.run("scontrol", "show", "hostnames", where).split()}
    assert labelled == accounted

    table = {row["kind"]: row["windows"] for row in json.loads(done.stdout)["table"]}
    ranks = max(int(kind.removeprefix("mpi-")) for kind in table if kind.startswith("mpi-"))
    assert ranks >= 2  # over both nodes
    assert {"np", "throttled"} <= set(table)
