"""Counting events on paper: two jobs that go wrong, one that does not."""

from __future__ import annotations

import numpy as np
import pytest
from tests.telemetry.detection.conftest import campaign

from clustertwin.core.channels import CPU
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.studies.event_metrics import count_events, judge, merged, truths

SPANS = (
    JobSpan("1", "a", (0,), 0, 1000, "np", anomaly="throttled", onset_s=200),
    JobSpan("2", "a", (1,), 0, 1000, "mpi-2", anomaly="hung-rank/peer", onset_s=300),
    JobSpan("3", "a", (2,), 0, 1000, "np"),
    JobSpan("4", "a", (3,), 0, 1000, "np", anomaly="slow-io", onset_s=900),  # too short to be looked for
)
TRACE = Trace("a", (0, 1, 2, 3), 0, CPU, np.zeros((4, 8640, 4), np.float32), np.ones((4, 8640), np.bool_), SPANS)


def event(*jobs: str) -> Event:
    return Event("-".join(jobs), (("a", (0,)),), jobs, "", 0, 0, None, 5.0, "density", "m")


def test_what_is_found_what_is_late_and_what_is_false():
    events = [(320, event("1")), (500, event("3")), (950, event("4"))]
    result = judge(events, [TRACE])
    rows = {row.anomaly: (row.there, row.found, row.delays_s) for row in result.found}
    assert rows == {"throttled": (1, 1, (120,)), "hung-rank": (1, 0, ())}
    assert (result.false_events, result.node_days) == (1, 0.1)
    assert result.false_per_node_day == pytest.approx(10)


def test_what_is_false_is_kept_to_be_looked_at_and_what_is_found_adds_up():
    result = judge([(320, event("1")), (500, event("3"))], [TRACE])
    assert (result.there, result.seen, [one.jobs for one in result.false]) == (2, 1, [("3",)])


def test_an_event_before_the_onset_is_false():
    assert judge([(150, event("1"))], [TRACE]).false_events == 1


def test_short_anomalies_are_not_looked_for_and_campaigns_add_up():
    assert {truth.job for truth in truths([TRACE])} == {"1", "2"}
    twice = merged([judge([(320, event("1"))], [TRACE])] * 2)
    assert [(row.there, row.found) for row in twice.found] == [(2, 0), (2, 2)]
    assert twice.node_days == pytest.approx(0.2)


def test_how_short_an_anomaly_is_looked_for_is_for_the_asker_to_say():
    assert {truth.job for truth in truths([TRACE], least_s=100)} == {"1", "2", "4"}


@pytest.mark.slow
def test_hung_jobs_are_events_and_little_else_is(detector: Detector):
    traces = campaign(6, hours=1.5, anomalies=("hung-job", "misbound"), anomaly_ratio=0.5)
    counted = count_events(detector, traces, stride_s=30)
    assert counted.there > 0
    assert counted.seen >= 0.8 * counted.there
    assert counted.false_events <= 2
    assert counted.node_days == pytest.approx(2 * 1.5 / 24)
