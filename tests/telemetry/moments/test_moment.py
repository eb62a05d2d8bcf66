from __future__ import annotations

import numpy as np

from clustertwin.core.channels import CPU
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.moments.moment import Moment, moments


def _trace(*spans: JobSpan) -> Trace:
    values = np.zeros((2, 600, 4), np.float32)
    values[..., 3] = 1
    return Trace("n1", (0, 1), 0, CPU, values, np.ones((2, 600), np.bool_), spans)


def test_a_window_with_an_onset_is_mixed_until_half_of_it_is_anomalous():
    trace = _trace(JobSpan("7", "n1", (0,), 0, 600, "np", anomaly="hung-job", onset_s=370.0))
    labels = {m.end_s: (w.job_type[0], w.anomaly[0]) for m, w in moments([trace], every_s=10)}
    assert labels[370] == ("np", "")
    assert labels[380] == ("mixed", "")
    assert labels[410] == ("mixed", "")
    assert labels[420] == ("np", "hung-job")


def test_threads_are_taken_with_the_other_threads_of_their_jobs(moment: Moment):
    few, where = moment.with_peers(np.array([5, 2]))
    assert few.cpu.tolist() == [0, 1, 2, 3, 5]
    assert few.cpu[where].tolist() == [5, 2]
    np.testing.assert_array_equal(few.values[where], moment.values[[5, 2]])


def test_no_job_holds_the_threads_in_the_idle_time_of_a_campaign():
    trace = _trace(JobSpan("7", "n1", (0,), 0, 600, "idle"), JobSpan("8", "n1", (1,), 0, 600, "np"))
    last = list(moments([trace]))[-1][0]
    assert (last.jobs, last.job.tolist()) == (("8",), [-1, 0])
