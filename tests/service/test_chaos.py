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
    command = [sys.executable, str(CHAOS), "--json", "--warm-s", "5", "--fault-s", "4"]
    command += ["--control-s", "0", "--only", *only]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    outcomes = json.loads(done.stdout or "[]")
    assert len(outcomes) == 3, done.stdout + done.stderr
    assert [(outcome["lost"], outcome["invented"]) for outcome in outcomes] == [(0, 0)] * 3
    assert all(outcome["recovered_s"] is not None for outcome in outcomes)
    assert sum(outcome["acknowledged"] for outcome in outcomes) > 0
