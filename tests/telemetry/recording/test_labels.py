import math
from dataclasses import replace

from clustertwin.core.traces import JobSpan
from clustertwin.telemetry.recording.logs import label_log

SPAN = JobSpan("7", "n1", (0,), 100.0, 200.0, "mpi-2", anomaly="hung-rank")


def test_threads_of_a_job_with_other_labels_keep_their_own_span(tmp_path):
    peer = replace(SPAN, cpus=(1,), anomaly="hung-rank-peer")
    label_log.append(tmp_path / "labels.jsonl", [SPAN, peer])
    assert label_log.read(tmp_path / "labels.jsonl") == [SPAN, peer]


def test_the_label_of_an_ended_job_replaces_the_first(tmp_path):
    for span in (replace(SPAN, end_s=float("inf")), SPAN):
        label_log.append(tmp_path / "labels.jsonl", [span])
    assert label_log.read(tmp_path / "labels.jsonl") == [SPAN]


def test_labels_of_the_past_are_removed_and_those_of_running_jobs_stay(tmp_path):
    path = tmp_path / "labels.jsonl"
    still_runs = JobSpan("8", "n1", (1,), 90.0, math.inf)
    later = JobSpan("9", "n1", (0,), 300.0, 400.0)
    label_log.append(path, [still_runs, replace(SPAN, end_s=math.inf), SPAN, later])
    label_log.drop_before(path, 250.0)
    assert label_log.read(path) == [still_runs, later]


def test_a_file_of_labels_that_is_too_long_loses_its_oldest_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(label_log, "MOST_KEPT_BYTES", 4000)
    for second in range(100):
        label_log.append(tmp_path / "labels.jsonl", [replace(SPAN, start_s=float(second))])
        assert (tmp_path / "labels.jsonl").stat().st_size <= 4000
    label_log.rewrite(tmp_path / "longer.jsonl", [replace(SPAN, start_s=float(second)) for second in range(100)])
    label_log.shorten(tmp_path / "longer.jsonl")  # of an earlier release
    assert len(label_log.read(tmp_path / "longer.jsonl")) == 2000 // len(label_log._line(SPAN))
    starts_s = [span.start_s for span in label_log.read(tmp_path / "labels.jsonl")]
    assert starts_s == list(range(100 - len(starts_s), 100))
