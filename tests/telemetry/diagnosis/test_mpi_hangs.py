"""Real MPI jobs that hang in known ways, and jobs that only look as if they did."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from clustertwin.telemetry.diagnosis.stack_tools import tool

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.skipif(not Path(sys.executable).with_name("mpiexec").exists(), reason="needs the extra campaign"),
    pytest.mark.skipif(tool("eu-stack") is None or os.uname().machine != "x86_64", reason="needs eu-stack and x86_64"),
]


@pytest.fixture(scope="module")
def hangs() -> ModuleType:
    path = Path(__file__).parents[3] / "benchmarks" / "hangs.py"
    spec = importlib.util.spec_from_file_location("hangs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["hangs"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", ["stopped", "blocked-io", "mismatch", "lost-message"])
def test_the_faulty_rank_of_a_hang_is_named(hangs, kind):
    (trial,) = hangs.run(kind, 4, 2, 2.0, 1)
    assert (trial.found, trial.hang, trial.named) == (kind, True, (2,)), trial.sentence


@pytest.mark.skipif(not Path("/usr/bin/mpiexec.openmpi").exists(), reason="needs openmpi-bin")
@pytest.mark.parametrize("kind", ["blocked-io", "mismatch"])
def test_the_faulty_rank_of_a_hang_in_open_mpi_is_named(hangs, kind):
    (trial,) = hangs.run(kind, 4, 2, 2.0, 1, "openmpi")
    assert (trial.found, trial.hang, trial.named) == (kind, True, (2,)), trial.sentence


@pytest.mark.parametrize("kind", ["healthy-tight", "healthy-exchange", "healthy-child", "healthy-threads"])
def test_a_healthy_job_is_not_accused(hangs, kind):
    for trial in hangs.run(kind, 4, -1, 1.0, 2):
        assert not trial.hang, trial.sentence
