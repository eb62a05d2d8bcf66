"""A slice of `make chaos`: some faults against real processes lose nothing, invent nothing, and pass."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CHAOS = Path(__file__).parents[2] / "benchmarks" / "chaos.py"


@pytest.mark.slow
@pytest.mark.real
def test_faults_lose_nothing_and_invent_nothing():
    only = ["negative chunk size", "exporter is killed", "kill -9 of the service"]
    command = [sys.executable, str(CHAOS), "--json", "--warm-s", "5", "--fault-s", "4", "--only", *only]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    outcomes = {outcome["fault"]: outcome for outcome in json.loads(done.stdout or "[]")}
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(outcomes) == 3
    assert "not the size of a chunk" in outcomes["negative chunk size"]["named"]
    assert sum(outcome["acknowledged"] for outcome in outcomes.values()) > 0
