from dataclasses import replace

from clustertwin.core.traces import JobSpan
from clustertwin.telemetry.recording.logs import label_log

SPAN = JobSpan("7", "n1", (0,), 100.0, 200.0, "mpi-2", anomaly="hung-rank")


def test_threads_of_a_job_with_other_labels_keep_their_own_span(tmp_path):
    peer = replace(SPAN, cpus=(1,), anomaly="hung-rank-peer")
    for span in (SPAN, peer):
        label_log.append(tmp_path / "labels.jsonl", span)
    assert label_log.read(tmp_path / "labels.jsonl") == [SPAN, peer]


def test_the_label_of_an_ended_job_replaces_the_first(tmp_path):
    for span in (replace(SPAN, end_s=float("inf")), SPAN):
        label_log.append(tmp_path / "labels.jsonl", span)
    assert label_log.read(tmp_path / "labels.jsonl") == [SPAN]
