"""`twin campaign run` as a person calls it: real jobs, a recording, one JSON document, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.campaign.campaign_run import run_campaign
from clustertwin.telemetry.campaign.plan import CampaignSettings
from clustertwin.telemetry.campaign.sampler import part_of
from clustertwin.telemetry.ingest.sources.local_host import Host
from clustertwin.telemetry.recording import Recording

TWIN = [sys.executable, "-m", "clustertwin"]


@pytest.mark.slow
def test_a_round_of_real_jobs_is_recorded_and_kept(tmp_path: Path) -> None:
    options = ["--out", str(tmp_path), "--rounds", "1", "--job-seconds", "3", "3.5", "--window-s", "2", "--json"]
    command = [*TWIN, "campaign", "run", *options, "--type", "np", "--type", "idle"]
    first = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert first.returncode == 0, first.stderr
    document = json.loads(first.stdout)
    assert {row["kind"] for row in document["table"]} == {"np", "idle"}
    recording = Recording.open(tmp_path / "round-000")
    (span,) = [span for span in recording.spans if span.job_type == "np"]
    trace = recording.trace(span.node, int(span.start_s) + 1, int(span.end_s))
    assert trace.valid.any()
    np.testing.assert_allclose(trace.values[trace.valid].sum(axis=1), 1.0, atol=1e-5)
    assert not (tmp_path / "scratch").exists()

    again = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert json.loads(again.stdout)["table"] == document["table"]
    assert [each["kept"] for each in json.loads(again.stdout)["rounds"]] == [True]


@pytest.mark.slow
def test_control_c_ends_every_job_and_the_round_counts_as_not_done(tmp_path: Path) -> None:
    options = ["--out", str(tmp_path), "--rounds", "1", "--job-seconds", "60", "60", "--type", "np"]
    with subprocess.Popen([*TWIN, "campaign", "run", *options], stderr=subprocess.PIPE) as run:
        end_s = time.monotonic() + 120
        while time.monotonic() < end_s and len(psutil.Process(run.pid).children(recursive=True)) < 3:
            time.sleep(0.1)
        children = psutil.Process(run.pid).children(recursive=True)
        assert len(children) >= 3
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=120)
    assert run.returncode not in (0, None)
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
    assert not (tmp_path / "round-000.json").exists()
    Recording.open(tmp_path / "round-000")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"nodes": {"n1": (0,), "n2": (1,)}}, "only with --via slurm"),
        ({"nodes": {"n1": (0,), "n2": (1, 2)}, "via": "slurm"}, "same number of CPUs"),
        ({"via": "pigeon"}, "not 'pigeon'"),
    ],
)
def test_what_cannot_be_honoured_is_refused(options: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=says):
        run_campaign(tmp_path / "c", CampaignSettings(), **options)
    assert not (tmp_path / "c").exists()


def test_a_node_is_a_part_of_the_hosts_reading() -> None:
    (reading,) = Host(jobs=False).readings()
    last = max(os.sched_getaffinity(0))
    part = part_of(reading, "n9", (last,))
    assert (part.node, part.cpus) == ("n9", (last,))
    np.testing.assert_array_equal(part.seconds[0], reading.seconds[reading.cpus.index(last)])
