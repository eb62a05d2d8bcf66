"""`twin exporter` as a process: output, exit code, memory, and real tools around it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.exporter.__main__ import main, parse_address
from clustertwin.telemetry.exporter.text.text_format import to_rows

COMMAND = [sys.executable, "-m", "clustertwin.telemetry.exporter"]
UNIFIED = next((p for p in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup") if Path(p, "cgroup.controllers").exists()), "")


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and the address it serves at."""
    command = [*COMMAND, "--web.listen-address=127.0.0.1:0", "--json", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process, json.loads(process.stdout.readline())["url"]
        finally:
            process.kill()


def test_once_prints_a_scrape(tree, capsys):
    assert main(["--once", f"--path.rootfs={tree.node().root}", "--node=n01"]) == 0
    assert 'twin_cpu_seconds_total{cpu="0",mode="user"} 1234e-2\n' in capsys.readouterr().out


def test_once_as_json_is_one_document(tree, capsys):
    main(["--once", "--json", f"--path.rootfs={tree.node().root}", "--node=n01", "--no-collector.jobs"])
    document = json.loads(capsys.readouterr().out)
    row = {"name": "twin_cpu_seconds_total", "labels": {"cpu": "0", "mode": "user"}, "value": 12.34}
    assert document["node"] == "n01"
    assert row in document["samples"]


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:9752", ("127.0.0.1", 9752)), ("[::1]:80", ("::1", 80)), (":9752", ("0.0.0.0", 9752))],
)
def test_an_address_is_host_and_port(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["9752", "localhost", "h:", "h:99999", "::1:80", "h:x"])
def test_an_invalid_address_is_refused(text):
    with pytest.raises(SettingsError, match=r"web\.listen-address"):
        parse_address(text)


def test_a_mistake_in_the_web_config_ends_with_2_and_one_line(tmp_path, capsys):
    (tmp_path / "web.yml").write_text("tls: {}")
    assert main([f"--web.config.file={tmp_path / 'web.yml'}"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("missing", ["absent", "."])
def test_a_rootfs_without_proc_is_refused(tmp_path, capsys, missing):
    """It was served as a node without any thread."""
    with pytest.raises(SystemExit, match="2"):
        main(["--once", f"--path.rootfs={tmp_path / missing}"])
    assert "proc is not a directory" in capsys.readouterr().err


def test_a_port_in_use_ends_with_2(tree, serve, capsys):
    tree.node()
    assert main([f"--web.listen-address=127.0.0.1:{serve().port}"]) == 2
    assert "in use" in capsys.readouterr().err


@pytest.mark.slow
def test_it_samples_without_scrapes_ends_on_a_signal_and_needs_little_memory(tree):
    with running(f"--path.rootfs={tree.node().root}") as (process, url):
        assert httpx.get(url).status_code == 200
        time.sleep(2.5)
        ring = httpx.get(url.replace("/metrics", "/ring?since=0")).text
        assert ring.count("t ") >= 3  # nobody scraped, and yet the seconds are there
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert int(status.split("VmRSS:")[1].split()[0]) < 25_000
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.slow
def test_an_open_address_without_tls_is_warned_about():
    command = [*COMMAND, "--web.listen-address=0.0.0.0:0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        process.terminate()
        assert "without TLS" in process.stderr.read()


def promtool(text: bytes) -> subprocess.CompletedProcess[bytes]:
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed")
    return subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)


@pytest.mark.real
def test_promtool_finds_nothing_wrong_with_a_tree_and_with_this_host(tree, agent, tmp_path):
    full = tree.node().v2()
    full.group("system.slice/slurmstepd.scope/job_1", cpuset_cpus="0", cpu_stat="user_usec 1\nsystem_usec 1")
    full.group('system.slice/slurmstepd.scope/job_a"\\b é', cpu_stat="user_usec 1\nsystem_usec 1")
    for text in (agent().scrape(), subprocess.run([*COMMAND, "--once"], capture_output=True, check=True).stdout):
        checked = promtool(text)
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def user_s(group: Path) -> float:
    times_us = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return int(times_us["user_usec"]) / 1e6


@pytest.mark.real
def test_a_real_cgroup_named_like_a_slurm_job_is_exposed():
    job = f"{UNIFIED}/system.slice/slurmstepd.scope/job_{900_000_000 + os.getpid()}"
    try:
        os.makedirs(job)
        with open(f"{job}/cgroup.procs", "w") as procs:
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            procs.write(str(process.pid))
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        patience_s = time.monotonic() + 60
        while user_s(Path(job)) < 0.15 and time.monotonic() < patience_s:  # on a busy machine it waits for a CPU
            time.sleep(0.05)
        text = subprocess.run(
            [*COMMAND, "--once", "--no-collector.cpu"], capture_output=True, check=True
        ).stdout.decode()
    finally:
        process.kill()
        process.wait()
        time.sleep(0.05)
        for path in (job, os.path.dirname(job), os.path.dirname(os.path.dirname(job))):
            with contextlib.suppress(OSError):
                os.rmdir(path)
    own = {" ".join([row["name"], *list(row["labels"].values())[2:]]): row["value"] for row in to_rows(text)
           if row["labels"].get("jobid") == job.rpartition("_")[2]}  # fmt: skip
    assert own["twin_job_cpu_seconds_total user"] > 0.1
    assert own["twin_job_owner_uid"] == os.getuid()
