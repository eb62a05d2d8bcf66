"""`twin learn` and `twin model` on the command line."""

import json

import pytest
from tests.telemetry.learning.conftest import small_day

from clustertwin.telemetry.learning.champions import champion_store, version_store
from clustertwin.telemetry.recording import Recorder


@pytest.fixture
def home(tmp_path, make_detector):
    for seed in range(2):
        lineage = {"night": f"2026-01-0{seed + 1}", "error": 0.1}
        version = version_store.add_version(tmp_path, make_detector(seed), lineage)
        champion_store.promote(tmp_path, version, seed, "better", 0.0)
    return tmp_path


def test_models_are_listed_shown_promoted_and_rolled_back(twin_here, home, make_detector):
    twin = twin_here
    first, second = (make_detector(seed).version for seed in range(2))
    listed = json.loads(twin("model", "list", "--home", home, "--json").stdout)
    assert [(row["version"], row["serving"]) for row in listed] == [(first, False), (second, True)]
    assert json.loads(twin("model", "show", first[:-2], "--home", home, "--json").stdout)["night"] == "2026-01-01"
    assert json.loads(twin("model", "rollback", "--home", home, "--json").stdout)["version"] == first
    assert f"{second} is in service" in twin("model", "promote", second, "--home", home).stdout
    refused = twin("model", "promote", "nothing", "--home", home)
    assert refused.returncode == 2
    assert "no version 'nothing'" in refused.stderr


@pytest.mark.slow
def test_learning_is_frozen_resumed_and_run_from_a_recording(twin, twin_here, home):
    day, traces = small_day(2)
    with Recorder.create(home / "recording" / "day", {t.node: t.cpus for t in traces}) as recorder:
        for trace in traces:
            recorder.append(trace)
            for span in trace.spans:
                recorder.label(span)
    assert json.loads(twin_here("learn", "freeze", "benchmarks", "--home", home, "--json").stdout)["state"] == "frozen"
    options = ("learn", "run", "--home", home, "--day", day.name, "--models", "linear", "--mlflow", "none", "--json")
    skipped = twin(*options, env={"TZ": "UTC", "PATH": "/usr/bin"})
    assert json.loads(skipped.stdout)["because"] == "frozen: benchmarks"
    assert twin_here("learn", "resume", "--home", home).stdout == "learning\n"
    night = twin(*options, "--workers", "1", env={"TZ": "UTC", "PATH": "/usr/bin"})
    assert night.returncode == 0, night.stderr
    assert json.loads(night.stdout)["outcome"] in ("promoted", "kept", "skipped")
    assert json.loads(night.stdout)["because"]


def test_the_error_for_a_home_without_recordings_says_what_to_do(twin_here, tmp_path):
    refused = twin_here("learn", "run", "--home", tmp_path)
    assert refused.returncode != 0
    assert "there is no recording; `twin up` makes one" in refused.stderr
    assert "Traceback" not in refused.stderr
