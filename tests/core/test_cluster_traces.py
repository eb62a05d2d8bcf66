"""Telemetry of a researcher's own in pandas, right and wrong."""

import numpy as np
import pandas as pd
import pytest

import clustertwin as ct
from clustertwin.core.channels import CPU
from clustertwin.core.errors import InputError, SettingsError
from clustertwin.core.traces import Trace

ROW = {"time_s": [100], "cpu": 0, "user": 0.9, "system": 0.1, "iowait": 0.0}


def test_traces_survive_pandas():
    cluster = ct.simulate_cluster(nodes=2, threads=4, minutes=2)
    again = ct.ClusterTraces.from_pandas(cluster.to_pandas())
    for before, after in zip(cluster, again, strict=True):
        assert (after.node, after.cpus, after.start_s, after.interval_s) == (
            before.node, before.cpus, before.start_s, 1)  # fmt: skip
        np.testing.assert_array_equal(after.valid, before.valid)
        np.testing.assert_allclose(after.values[after.valid], before.values[before.valid], atol=1e-6)
    assert {(span.job, span.cpus) for span in again.jobs} == {(span.job, span.cpus) for span in cluster.jobs}


def test_ten_second_samples_with_gaps_keep_their_interval_and_mask_the_gap():
    times = pd.to_datetime(["2026-01-05 09:00:00", "2026-01-05 09:00:10", "2026-01-05 09:00:30"]).tz_localize(
        "Asia/Tokyo"
    )
    frame = pd.DataFrame({"time": times, "cpu": 2, "user": [0.5, 0.25, np.nan], "system": 0.25, "iowait": 0.0})
    (trace,) = ct.ClusterTraces.from_pandas(frame)
    assert (trace.start_s, trace.interval_s, trace.cpus) == (1_767_571_200, 10, (2,))
    assert trace.values[0, :, 3].tolist() == [0.25, 0.5]  # other is the rest
    (trace,) = ct.ClusterTraces.from_pandas(frame.fillna(0.5))
    assert trace.valid.tolist() == [[True, True, False, True]]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"cpu": 0, "user": [1.0]}, "no column iowait, system, time_s"),
        ({**ROW, "user": 90.0}, "row 0: user 90"),
        ({**ROW, "user": -0.5}, "row 0: user -0.5"),
        ({**ROW, "time_s": [100, 100]}, "two rows for one time"),
        ({**ROW, "time_s": [100, 102, 105]}, "multiples of one interval"),
        ({**ROW, "time_s": []}, "no rows"),
    ],
)
def test_a_frame_that_holds_no_traces_is_refused_with_the_reason(columns, reason):
    with pytest.raises(InputError, match=reason):
        ct.ClusterTraces.from_pandas(pd.DataFrame(columns))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"interval_s": 10}, "n1: a sample every 10 s; a detector needs one every second"),
        ({"values": np.full((1, 400, 4), 25, np.float32)}, "n1: 25 is no ratio"),
        ({"values": np.full((1, 400, 4), np.nan, np.float32)}, "n1: nan is no ratio"),
        ({"cpus": (0, 1)}, "do not fit 2 threads"),
    ],
)
def test_a_detector_refuses_traces_that_it_cannot_read(change, reason):
    good = {"cpus": (0,), "values": np.full((1, 400, 4), 0.25, np.float32), "valid": np.ones((1, 400), np.bool_)}
    with pytest.raises(SettingsError, match=reason):
        ct.load_detector().score(Trace(node="n1", start_s=0, schema=CPU, **good | change))
