"""The commands as a user types them, with and without a running service."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import pytest
from tests.servers import free_address
from tests.service.web.test_api import EVENT, WHY

from clustertwin.cli.up import print_address
from clustertwin.service.store.event_store import Store
from clustertwin.service.store.tokens import Tokens
from clustertwin.service.web.binding import Binding


@pytest.fixture
def home(tmp_path):
    store = Store(tmp_path / "state.sqlite")
    store.write([(EVENT, WHY)])
    store.close()
    return tmp_path


def test_events_are_listed_confirmed_and_undone_from_the_shell(twin_here, home):
    twin = twin_here
    listed = json.loads(twin("events", "list", "--home", home, "--json").stdout)
    assert [event["id"] for event in listed] == ["e1"]
    done = twin("events", "confirm", "e1", "--comment", "disk 3", "--home", home, "--json")
    assert json.loads(done.stdout)[0]["verdict"] == "confirmed"
    shown = twin("events", "show", "e1", "--home", home)
    assert "iowait was 70 %" in shown.stdout
    assert "disk 3" in shown.stdout
    assert json.loads(twin("events", "undo", "e1", "--home", home, "--json").stdout)[0]["verdict"] == ""
    unknown = twin("events", "dismiss", "nonsense", "--home", home)
    assert (unknown.returncode, unknown.stderr.strip()) == (1, "twin: there is no event 'nonsense'")


def test_a_verdict_that_does_not_exist_is_no_empty_list(twin_here, home):
    refused = twin_here("events", "list", "--home", home, "--verdict", "confirm")
    assert refused.returncode == 2
    assert "unknown verdict 'confirm'; use one of confirmed, dismissed, new-normal" in refused.stderr


def test_a_service_says_what_it_watches_and_how_to_see_it_from_a_desk(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 5 10.0.0.2 22")
    print_address(Binding(), tmp_path, False, "this machine")
    told = capsys.readouterr().err
    assert "It watches this machine. The first scores come after" in told
    assert "ssh -L 8790:127.0.0.1:8790" in told


def test_tokens_are_created_listed_and_removed(twin_here, home):
    twin = twin_here
    token = json.loads(twin("token", "add", "ada", "--role", "vet", "--home", home, "--json").stdout)["token"]
    store = Store(home / "state.sqlite")
    assert Tokens(store.database).holder(token).role == "vet"
    store.close()
    assert json.loads(twin("token", "list", "--home", home, "--json").stdout)[0]["name"] == "ada"
    assert twin("token", "remove", "ada", "--home", home).returncode == 0
    assert twin("token", "remove", "ada", "--home", home).returncode == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("events", "list", "--home", "/nonexistent"), "no service has run here"),
        (("up", "--replay", "/nonexistent", "--no-browser"), "/nonexistent"),
        (("serve", "--config", "/nonexistent.toml"), "/nonexistent.toml: cannot be read"),
    ],
)
def test_an_error_is_one_sentence(twin_here, tmp_path, monkeypatch, words, message):
    monkeypatch.setenv("CLUSTERTWIN_HOME", str(tmp_path))
    done = twin_here(*words)
    assert done.returncode != 0
    assert len(done.stderr.strip().splitlines()) == 1
    assert message in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("maintenance end 99999999999999999999", "there is no maintenance window 99999999999999999999"),
        ("silence end 99999999999999999999", "there is no silence 99999999999999999999"),
        ("maintenance add n1 --from 0001-01-01", "beyond the calendar"),
        ("maintenance add n1 --from 9999-12-31 --for 3000d", "must end after it begins"),
        ("maintenance add ''", "needs at least one node"),
        ("digest --days inf", "36525"),
    ],
)
def test_odd_numbers_times_and_names_are_refused_in_one_sentence(twin_here, home, words, message):
    done = twin_here(*shlex.split(words), "--home", home)
    assert done.returncode == 2
    assert message in done.stderr
    assert twin_here("maintenance", "list", "--home", home).returncode == 0


def test_a_window_beyond_the_calendar_that_an_earlier_release_stored_is_listed(twin_here, home):
    store = Store(home / "state.sqlite")
    with store.database.transaction() as connection:
        connection.execute("INSERT INTO maintenance VALUES (1, '[\"n1\"]', 0, 9e14, '', '')")
        connection.execute("INSERT INTO silences VALUES (1, 'n1', '', '', '', 9e14, '', '')")
    store.close()
    for command in ("maintenance", "silence"):
        done = twin_here(command, "list", "--home", home)
        assert (done.returncode, "n1" in done.stdout) == (0, True)


def test_serve_refuses_to_listen_beyond_loopback_without_tls_and_tokens(twin_here, tmp_path):
    config = tmp_path / "twin.toml"
    config.write_text(f"[service]\nhost = '0.0.0.0'\nport = 0\nhome = '{tmp_path / 'home'}'\n")
    done = twin_here("serve", "--config", config)
    assert (done.returncode, "needs TLS" in done.stderr) == (2, True)


def test_a_service_with_a_wrong_setting_leaves_no_thread_that_keeps_its_process(twin_here, tmp_path):
    config = tmp_path / "twin.toml"
    config.write_text(f"[service]\nport = 0\nhome = '{tmp_path / 'home'}'\n[clusters]\nalpha = 'http://[::1'\n")
    before = set(threading.enumerate())
    done = twin_here("serve", "--config", config)
    assert (done.returncode, "is not an address" in done.stderr) == (2, True)
    assert [thread for thread in threading.enumerate() if not thread.daemon and thread not in before] == []


def test_a_job_report_names_the_directive_to_change(twin_here, tmp_path):
    twin = twin_here
    import numpy as np

    from clustertwin.core.channels import CPU
    from clustertwin.core.traces import JobSpan, Trace
    from clustertwin.telemetry.recording import Recorder

    values = np.zeros((8, 60, 4), np.float32)
    values[:4, :, 0] = values[4:, :, 3] = 1
    with Recorder.create(tmp_path / "recording", {"n1": tuple(range(8))}) as recorder:
        recorder.append(Trace("n1", tuple(range(8)), 1_000_000, CPU, values, np.ones((8, 60), np.bool_)))
        recorder.label(JobSpan("4711", "n1", tuple(range(8)), 1_000_000, 1_000_060, owner="ada"))
    done = twin("job", "4711", "--home", tmp_path)
    assert "#SBATCH --cpus-per-task=4" in done.stdout
    assert {len(line) for line in done.stdout.splitlines() if line.startswith("─")} == {78}
    assert "The work is on 4 of 8 threads" in done.stdout
    missing = twin("job", "1", "--home", tmp_path)
    assert (missing.returncode, "no job '1'" in missing.stderr) == (2, True)


def test_a_job_report_is_read_from_the_recording_of_a_cluster(twin_here, tmp_path):
    """Two nodes of exporters, recorded as a service does it: no Prometheus is asked."""
    import numpy as np

    from clustertwin.core.channels import CPU
    from clustertwin.core.traces import JobSpan, Trace
    from clustertwin.service.live.feeds.source_setup import SourceSettings, write_source
    from clustertwin.service.live.live_recorder import LiveRecorder

    write_source(tmp_path, SourceSettings("exporters", urls=("http://127.0.0.1:1",)))
    recorder = LiveRecorder(tmp_path / "recording", keep_s=None, flush_s=50)
    values = np.zeros((2, 60, 4), np.float32)
    values[0, :, 0] = values[1, :, 3] = 1
    for node in ("n1", "n2"):
        span = JobSpan("4711", node, (0, 1), 1_000_000, 1_000_060, owner="ada")
        recorder.add(Trace(node, (0, 1), 1_000_000, CPU, values, np.ones((2, 60), np.bool_), (span,)))
    recorder.close()
    report = json.loads(twin_here("job", "4711", "--home", tmp_path, "--json").stdout)
    assert report["threads"] == [["n1", 0], ["n1", 1], ["n2", 0], ["n2", 1]]
    assert [round(row[0], 2) for row in report["means"]] == [1, 0, 1, 0]


def test_a_job_report_of_a_cluster_without_a_recording_names_the_setting(twin_here, tmp_path):
    from clustertwin.service.live.feeds.source_setup import SourceSettings, write_source

    write_source(tmp_path, SourceSettings("exporters", urls=("http://127.0.0.1:1",)))
    refused = twin_here("job", "4711", "--home", tmp_path)
    assert "there is no recording; `twin up` makes one, recording.cluster makes one of a cluster" in refused.stderr


#: Runs a command with a fake server that prints how many threads numpy and torch would use outside the main thread.
THREADS = """
import sys, threading, uvicorn
from clustertwin.cli import main

def look():
    import torch
    from threadpoolctl import threadpool_info
    print(sorted({(pool["user_api"], pool["num_threads"]) for pool in threadpool_info()}))

def instead(server, sockets):
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()

uvicorn.Server.run = instead
sys.argv = ["twin", "up", "--no-browser", "--no-learn", "--port", "0", "--home", sys.argv[1]]
main()
"""


@pytest.mark.slow
def test_a_service_scores_on_one_core(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-c", THREADS, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert (done.stdout, done.returncode) == ("[('blas', 1), ('openmp', 1)]\n", 0), done.stderr


@pytest.mark.real
def test_up_serves_its_page_scores_this_host_and_ends_cleanly(tmp_path):
    """The real command on this machine: the page, a node, and an end without a traceback."""
    port = free_address().rpartition(":")[2]
    command = [sys.executable, "-m", "clustertwin", "up", "--port", port, "--no-browser", "--home", tmp_path, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        snapshot: dict[str, object] = {}
        while time.monotonic() < deadline and not snapshot.get("nodes"):
            assert process.poll() is None, process.stderr.read()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/snapshot", timeout=30) as answer:
                    snapshot = json.load(answer)
            except OSError:
                time.sleep(0.1)
        assert snapshot["phase"] == "warming-up"
        assert snapshot["nodes"][0]["threads"] >= 1
        assert snapshot["problems"] == []
        second = subprocess.run(command, capture_output=True, text=True)
        assert (second.returncode, "another service uses this home" in second.stderr) == (2, True)
    finally:
        process.send_signal(signal.SIGINT)
        _, wrong = process.communicate(timeout=120)
    assert "Traceback" not in wrong
    assert (tmp_path / "recording" / "zarr.json").exists()


def test_a_service_does_not_start_on_a_damaged_database(home):
    """A page that opening the database does not read: the service would start, and fail later."""
    import sqlite3

    from clustertwin.core.errors import InputError
    from clustertwin.service.config import LearningSection, ServiceConfig, ServiceSection
    from clustertwin.service.serving import run

    path = home / "state.sqlite"
    with sqlite3.connect(path) as database:
        page_bytes = database.execute("PRAGMA page_size").fetchone()[0]
        root = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'audit_by_subject'").fetchone()[0]
    data = bytearray(path.read_bytes())
    data[(root - 1) * page_bytes : root * page_bytes] = b"\xa5" * page_bytes
    path.write_bytes(data)

    def started(binding: object) -> None:
        raise KeyboardInterrupt

    config = ServiceConfig(service=ServiceSection(port=0, home=str(home)), learning=LearningSection(nightly=""))
    with pytest.raises(InputError, match="the database is damaged"):
        run(config, ready=started)


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["garbage", "short", "directory", "fifo"])
def test_twin_up_on_a_damaged_database_ends_with_a_sentence_and_code_1(damage, tmp_path, twin):
    path = tmp_path / "state.sqlite"
    if damage == "garbage":
        path.write_bytes(b"\xa5" * 8192)
    elif damage == "short":
        path.write_bytes(b"SQLite format 3\x00" + bytes(30))
    elif damage == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    done = twin("up", "--no-browser", "--port", "0", "--home", str(tmp_path), "--no-learn", timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("state.sqlite") == 1
    assert "Traceback" not in done.stderr
