"""Counting events on paper: two jobs that go wrong, one that does not."""

from __future__ import annotations

import numpy as np
import pytest

from clustertwin.core.channels import CPU
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.detection.event_study import judge, merged, truths
from clustertwin.telemetry.detection.events import Event

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


def test_an_event_before_the_onset_is_false():
    assert judge([(150, event("1"))], [TRACE]).false_events == 1


def test_short_anomalies_are_not_looked_for_and_campaigns_add_up():
    assert {truth.job for truth in truths([TRACE])} == {"1", "2"}
    twice = merged([judge([(320, event("1"))], [TRACE])] * 2)
    assert [(row.there, row.found) for row in twice.found] == [(2, 0), (2, 2)]
    assert twice.node_days == pytest.approx(0.2)
