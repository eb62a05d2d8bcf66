"""A slice of `make soak`: half an hour in compressed time; and slopes of known numbers."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"


@pytest.fixture
def soak(monkeypatch):
    monkeypatch.syspath_prepend(str(SOAK.parent))
    spec = importlib.util.spec_from_file_location("soak", SOAK)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "soak", module)
    spec.loader.exec_module(module)
    return module


def test_slopes_are_those_of_the_second_half(soak):
    samples = [
        soak.Sample(hour * 10.0, float(hour), 900.0 if hour < 5 else 100.0 + 2 * hour, 20, 5, 1.0 + hour)
        for hour in range(11)
    ]
    slopes = soak.slopes(samples)
    assert slopes["rss_mb"] == (pytest.approx(2.0), pytest.approx(720.0))
    assert slopes["descriptors"] == (pytest.approx(0.0, abs=1e-9), pytest.approx(0.0, abs=1e-9))
    assert slopes["disk_mb"][0] == pytest.approx(1.0)


@pytest.mark.slow
@pytest.mark.real
def test_a_replay_with_page_loads_ends_without_a_failure():
    command = [sys.executable, str(SOAK), "--hours", "0.25", "--speed", "120", "--days-before", "0", "--json"]
    done = subprocess.run([*command, "--no-nights"], capture_output=True, text=True, timeout=400)
    result = json.loads(done.stdout or "{}")
    assert result, done.stderr
    assert result["hours"] > 0.2
    assert (result["failed_loads"], result["verdicts"]) == (0, result["events"])
    assert result["loads"] > 10
