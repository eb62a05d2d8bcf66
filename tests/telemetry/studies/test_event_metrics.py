"""Event counts of a small example: two jobs with a long anomaly, one with a short one, one normal job."""

from __future__ import annotations

import numpy as np
import pytest
from tests.telemetry.detection.conftest import campaign

from clustertwin.core.channels import CPU, JOB, NODE
from clustertwin.core.traces import JobChannels, JobSpan, NodeChannels, Trace
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.studies.event_metrics import (
    count_events,
    labelled_anomalies,
    match_events,
    merge_counts,
    replay,
)

SPANS = (
    JobSpan("1", "a", (0,), 0, 1000, "np", anomaly="throttled", onset_s=200),
    JobSpan("2", "a", (1,), 0, 1000, "mpi-2", anomaly="hung-rank/peer", onset_s=300),
    JobSpan("3", "a", (2,), 0, 1000, "np"),
    JobSpan("4", "a", (3,), 0, 1000, "np", anomaly="slow-io", onset_s=900),  # too short to count
)
TRACE = Trace("a", (0, 1, 2, 3), 0, CPU, np.zeros((4, 8640, 4), np.float32), np.ones((4, 8640), np.bool_), SPANS)


def event(*jobs: str) -> Event:
    return Event("-".join(jobs), (("a", (0,)),), jobs, "", 0, 0, None, 5.0, "density", "m")


def test_detections_delays_and_false_events_are_counted():
    events = [(320, event("1")), (500, event("3")), (950, event("4"))]
    result = match_events(events, [TRACE])
    rows = {row.anomaly: (row.total, row.detected, row.delays_s) for row in result.anomalies}
    assert rows == {"throttled": (1, 1, (120,)), "hung-rank": (1, 0, ())}
    assert (result.false_events, result.node_days) == (1, 0.1)
    assert result.false_per_node_day == pytest.approx(10)


def test_false_events_are_listed_and_totals_are_sums():
    result = match_events([(320, event("1")), (500, event("3"))], [TRACE])
    assert (result.total, result.detected, [event.jobs for event in result.false]) == (2, 1, [("3",)])


def test_an_event_before_the_onset_is_false():
    assert match_events([(150, event("1"))], [TRACE]).false_events == 1


def test_short_anomalies_do_not_count_and_campaigns_add_up():
    assert {anomaly.job for anomaly in labelled_anomalies([TRACE])} == {"1", "2"}
    twice = merge_counts([match_events([(320, event("1"))], [TRACE])] * 2)
    assert [(row.total, row.detected) for row in twice.anomalies] == [(2, 0), (2, 2)]
    assert twice.node_days == pytest.approx(0.2)


def test_the_shortest_anomaly_is_a_parameter():
    assert {anomaly.job for anomaly in labelled_anomalies([TRACE], shortest_s=100)} == {"1", "2", "4"}


@pytest.mark.slow
def test_hung_jobs_are_detected_with_few_false_events(detector: Detector):
    traces = campaign(6, hours=1.5, anomalies=("hung-job", "misbound"), anomaly_ratio=0.5)
    counted = count_events(detector, traces, stride_s=30)
    assert counted.total > 0
    assert counted.detected >= 0.8 * counted.total
    assert counted.false_events <= 2
    assert counted.node_days == pytest.approx(2 * 1.5 / 24)


def test_a_replay_gives_each_second_of_a_node_and_of_a_job_to_its_own_second():
    class Unscored:
        def score(self, moment):
            return None

    second = np.arange(400, dtype=np.float32)[:, None] / 400
    trace = Trace(
        "a",
        (0,),
        0,
        CPU,
        np.zeros((1, 400, 4), np.float32),
        np.ones((1, 400), np.bool_),
        (JobSpan("1", "a", (0,), 0, 400),),
        node_channels=NodeChannels(NODE, np.repeat(second, len(NODE), 1)),
        job_channels=JobChannels(JOB, ("1",), np.repeat(second, len(JOB), 1)[None]),
    )
    for moment, _ in replay(Unscored(), [trace], 50):
        known = min(moment.end_s, 300)
        expected = second[moment.end_s - known : moment.end_s, 0]
        assert np.array_equal(moment.node_channels.values[0, -known:, 0], expected)
        assert np.array_equal(moment.job_channels.values[0, -known:, 0], expected)
