"""Texts that clients of the service wrote, printed on an administrator's terminal: they neither act nor crash."""

from __future__ import annotations

import json
import os
import time

import numpy as np
import pytest

from clustertwin.cli.output import print_json, print_table
from clustertwin.core.channels import CPU
from clustertwin.core.formatting import visible_lines
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.service.store.event_store import Store
from clustertwin.service.store.quiet_periods import MaintenanceWindow, Silence
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.explanation import Explanation, Ratio
from clustertwin.telemetry.ingest.sources.http import refused
from clustertwin.telemetry.recording import Recorder
from clustertwin.workload import formats
from clustertwin.workload.example_log import example_log

#: A new title of the terminal, red text, another writing direction, and markup of rich that is closed but never opened.
HOSTILE = "\x1b]0;pwned\x07\x1b[31m\u202e\x00 [/red] [link=http://evil]x[/link]"
LINES = ("silence list", "maintenance list", "audit")


@pytest.mark.parametrize("line", LINES)
def test_what_a_client_wrote_does_not_act_on_the_terminal(tmp_path, twin_here, monkeypatch, line):
    """The escape sequences reached the terminal, and the markup ended the command with a traceback."""
    monkeypatch.setenv("COLUMNS", "1000")
    store, now_s = Store(tmp_path / "state.sqlite"), time.time()
    store.quiet_periods.add_silence(Silence(now_s + 600, node=HOSTILE, reason=HOSTILE, who=HOSTILE), now_s)
    window = MaintenanceWindow((HOSTILE,), now_s, now_s + 600, HOSTILE, HOSTILE)
    store.quiet_periods.add_maintenance(window, now_s)
    store.close()
    done = twin_here(*line.split(), "--home", tmp_path)
    assert done.returncode == 0
    assert not set("\x1b\x07\x00\u202e") & set(done.stdout + done.stderr)
    assert "\\x1b]0;pwned" in done.stdout
    assert "[link=http://evil]x[/link]" in done.stdout


def test_numbers_and_lines_of_a_cell_stay(capsys):
    print_table("", ("a", "b"), [(1.23456, "one\ntwo")])
    out = capsys.readouterr().out
    assert "1.235" in out
    assert "one" in out
    assert "\\n" not in out
    assert visible_lines("a\n\x1b") == "a\n\\x1b"


def test_a_comment_cannot_add_an_entry_to_the_audit_log_of_a_narrow_terminal(tmp_path, twin_here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    store = Store(tmp_path / "state.sqlite")
    store.write([(Event("e1", (("n1", (0,)),), ("7",), "ada", 940, 990, None, 4.5, "density", "m"), None)])
    store.vet(["e1"], "dismissed", who="eve", comment="fine\n\nwhen: 2026-01-01\nwho: root", now_s=1000.0)
    store.close()
    done = twin_here("audit", "--home", tmp_path)
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if line.startswith("who:")] == ["who: eve"]
    assert "\n  who: root" in done.stdout


def test_the_job_types_of_a_model_do_not_act_on_the_terminal(tmp_path, twin_here):
    store = Store(tmp_path / "state.sqlite")
    event = Event("e1", (("n1", (0,)),), ("7",), "ada", 940, 990, None, 4.5, "density", "m")
    why = Explanation("density", 890, 990, 80, 1, 2, "node", (Ratio("iowait", 0.7, 0.02, None),), ((HOSTILE, 1.0),))
    store.write([(event, why)])
    store.close()
    done = twin_here("events", "show", "e1", "--home", tmp_path)
    assert done.returncode == 0
    assert not set("\x1b\x07\x00\u202e") & set(done.stdout + done.stderr)
    assert "\\x1b]0;pwned" in done.stdout


def test_the_name_of_a_log_does_not_act_on_the_terminal_in_notes(tmp_path, twin_here):
    good = "1 0 10 60 4 -1 -1 4 60 -1 1 1 1 1 1 1 -1 -1\n"
    (tmp_path / "a\x1b]0;pwned\x07.swf").write_text(f"{good}2 0 10 60 4\n")
    done = twin_here("trace", "describe", tmp_path / "a\x1b]0;pwned\x07.swf", "--lenient")
    assert not set("\x1b\x07") & set(done.stdout + done.stderr)
    assert "a\\x1b]0;pwned\\x07.swf:2: 5 fields" in done.stderr


@pytest.mark.parametrize("body", [b'{"error": "\\u001b[2J\\u202e"}', b"<h1>\x1b[2J\xe2\x80\xae</h1>"])
def test_the_reason_of_a_server_is_spelled_out(body):
    """An exporter that answers 500 wrote to the terminal of `twin record` and `twin top`."""
    assert refused(body).isprintable()
    assert "\\x1b[2J\\u202e" in refused(body)


def test_the_names_in_a_recording_from_elsewhere_do_not_act_on_the_terminal(tmp_path, twin_here):
    values = np.tile(np.array([0.25, 0, 0, 0.75], np.float32), (1, 60, 1))
    with Recorder.create(tmp_path / "r", {"n0": (0,)}) as recorder:
        recorder.append(Trace("n0", (0,), 1000, CPU, values, np.ones((1, 60), np.bool_)))
        recorder.label(JobSpan("7", "n0", (0,), 1000, 1060, "np", owner=HOSTILE, name=HOSTILE))
    done = twin_here("job", "7", "--recording", tmp_path / "r", "--home", tmp_path)
    assert done.returncode == 0, done.stderr
    assert not set("\x1b\x07\x00\u202e") & set(done.stdout + done.stderr)
    assert "\\x1b]0;pwned" in done.stdout


def test_the_names_of_nodes_in_a_digest_do_not_act_on_the_terminal(tmp_path, twin_here):
    """A replay takes them from its recording, and the digest is also sent to people."""
    store, now_s = Store(tmp_path / "state.sqlite"), int(time.time())
    places = ((HOSTILE, (0,)),)
    store.write([(Event("e1", places, (HOSTILE,), HOSTILE, now_s - 60, now_s, None, 4.5, "density", "m"), None)])
    store.close()
    done = twin_here("digest", "--home", tmp_path)
    assert done.returncode == 0
    assert not set("\x1b\x07\x00\u202e") & set(done.stdout + done.stderr)
    assert "\\x1b]0;pwned" in done.stdout


#: A formula of matplotlib without its end, and bytes that are not UTF-8 as Python names them.
ODD_FILE = os.fsdecode(b"a$\\frac$\xff.swf")


@pytest.mark.medium
@pytest.mark.parametrize("command", ["describe {} --out {}", "forecast {} --weeks 1 --draws 2 --plot {}"])
@pytest.mark.parametrize("plot", ["plot.svg", "page.html"])
def test_the_name_of_a_log_is_neither_a_formula_nor_an_error_of_a_plot(tmp_path, twin_here, command, plot):
    log, out = tmp_path / ODD_FILE, tmp_path / plot
    formats.write(example_log(300), log)
    done = twin_here("trace", *command.format(log, out).split(), "--json")
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0)
    json.loads(done.stdout)
    assert out.stat().st_size > 0


def test_a_file_name_in_a_document_may_have_bytes_that_are_not_utf_8(capsys):
    print_json({"out": ODD_FILE, "jobs": [np.int64(3)]})
    assert json.loads(capsys.readouterr().out) == {"out": "a$\\frac$\\udcff.swf", "jobs": [3]}
