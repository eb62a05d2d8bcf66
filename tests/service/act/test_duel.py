"""A slice of the duel: on a real slurmctld the twin cancels a real hung MPI job and leaves a healthy one alone."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from tests.slurm import reason_to_skip, slurm_cluster

from clustertwin.telemetry.diagnosis.stack_tools import tool


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip() or "-")
@pytest.mark.skipif(not Path(sys.executable).with_name("mpiexec").exists(), reason="needs the extra campaign")
@pytest.mark.skipif(tool("eu-stack") is None or os.uname().machine != "x86_64", reason="needs eu-stack and x86_64")
def test_a_hung_job_is_cancelled_and_a_healthy_one_completes(tmp_path, monkeypatch):
    path = Path(__file__).parents[3] / "benchmarks" / "duel.py"
    spec = importlib.util.spec_from_file_location("duel", path)
    assert spec is not None
    assert spec.loader is not None
    duel = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "duel", duel)
    spec.loader.exec_module(duel)
    duel.compile_simulator()
    plan = [duel.Episode(0, "blocked-io", 3, 1), duel.Episode(1, "healthy-exchange", 3, -1)]
    with slurm_cluster(tmp_path / "slurm", {"n1": (0, 1, 2, 3), "n2": (0, 1, 2, 3)}) as slurm:
        for name in ("SLURM_CONF", "PATH"):
            monkeypatch.setenv(name, slurm.env[name])
        hung, healthy = duel.arm(slurm, plan, tmp_path / "act", True, lambda arm, run: None)
    assert (hung.found, hung.named) == ("blocked-io", (1,))
    assert hung.elapsed_s < duel.LIMIT_S
    assert hung.state in ("CANCELLED", "FAILED")  # mpiexec may end by itself after the signal
    assert hung.promised_s is not None
    assert hung.promised_s > 0
    assert (healthy.state, healthy.acted_s) == ("COMPLETED", None)
