"""A supervised job ends on time, reports why it ended early, and leaves no process or file behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from clustertwin.core.errors import OutputError
from clustertwin.telemetry.campaign import supervisor
from clustertwin.telemetry.campaign.catalogue import JobSpec

MODULE = "clustertwin.telemetry.campaign.supervisor"
CPUS = ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))


def command(kind: str, scratch: Path, seconds: float) -> list[str]:
    return [
        sys.executable,
        "-m",
        MODULE,
        "--type",
        kind,
        "--cpus",
        CPUS,
        "--seconds",
        str(seconds),
        "--scratch",
        str(scratch),
    ]


def processes_of(scratch: Path) -> list[psutil.Process]:
    """The processes of a job: its directory is in the command line of all of them."""
    processes = []
    for process in psutil.process_iter(["cmdline", "status"]):
        if process.info["status"] != psutil.STATUS_ZOMBIE and any(
            str(scratch) in word for word in process.info["cmdline"] or ()
        ):
            processes.append(process)
    return processes


def gone_within(scratch: Path, seconds: float) -> bool:
    end_s = time.monotonic() + seconds
    while processes_of(scratch):
        if time.monotonic() > end_s:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.medium
def test_a_job_that_works_ends_on_time_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(command("idle", tmp_path / "job", 0.2), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "job").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["np", "mpi-2", "throttled"])
def test_a_killed_supervisors_parent_takes_the_whole_job_along(kind: str, tmp_path: Path) -> None:
    if kind == "mpi-2" and "," not in CPUS:
        pytest.skip("needs two CPUs")
    scratch = tmp_path / "job"
    starter = f"import subprocess; subprocess.Popen({command(kind, scratch, 60)!r}).wait()"
    with subprocess.Popen([sys.executable, "-c", starter]) as parent:
        end_s, found = time.monotonic() + 90, 0
        # Parent, supervisor, program, worker, twice: for a moment a forked process has its parent's command line.
        while min(found, found := len(processes_of(scratch))) < 4 and time.monotonic() < end_s:
            time.sleep(0.05)
        assert found >= 4
        parent.send_signal(signal.SIGKILL)
    assert gone_within(scratch, 15)
    assert not scratch.exists()


@pytest.mark.slow
def test_a_job_that_ends_early_is_reported(tmp_path: Path) -> None:
    scratch = tmp_path / "job"
    with subprocess.Popen(command("good-io", scratch, 30), stderr=subprocess.PIPE, text=True) as running:
        end_s = time.monotonic() + 90
        while time.monotonic() < end_s:
            workers = [p for p in processes_of(scratch) if "good_io" in " ".join(p.cmdline()) and not p.children()]
            if workers and len(workers[0].cpu_affinity() or ()) == 1:
                break
            time.sleep(0.05)
        workers[0].kill()
        _, stderr = running.communicate(timeout=90)
    assert running.returncode == 1
    assert "ended early" in stderr
    assert not scratch.exists()


def test_an_unknown_type_and_a_used_scratch_are_refused(tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "mine").write_text("precious")
    for kind, scratch, message in (
        ("nap", "new", "unknown job type 'nap'"),
        ("idle", "used", "a scratch directory of its own"),
    ):
        done = subprocess.run(command(kind, tmp_path / scratch, 1), capture_output=True, text=True)
        assert (done.returncode, message in done.stderr) == (1, True)
    assert (tmp_path / "used" / "mine").read_text() == "precious"


def test_a_full_disk_is_refused_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 100 << 20})
    monkeypatch.setattr(supervisor.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(OutputError, match="100 MB free"):
        supervisor.supervise(JobSpec("np", (0,), 1.0, 0, tmp_path))
