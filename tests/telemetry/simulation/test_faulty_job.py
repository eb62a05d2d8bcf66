"""A fault of one job of a simulated cluster."""

from __future__ import annotations

import numpy as np
import pytest

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.faulty_job import JobFault, with_fault
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate

SETTINGS = ClusterSettings(2, 4, 0.2, ("mpi-8",), idle_ratio=0.0, job_s=(600.0, 700.0))
ONSET_S = SETTINGS.start_s + 200


@pytest.fixture(scope="module")
def healthy():
    return simulate(SETTINGS, read_signatures(None), 0)


def test_only_the_jobs_threads_change_and_only_from_the_onset_on(healthy):
    faulty = with_fault(healthy, JobFault("1", "hung-job", ONSET_S), read_signatures(None), 0)
    for before, after in zip(healthy, faulty, strict=True):
        (span,) = (span for span in after.spans if span.job == "1")
        changed = (before.values != after.values).any(axis=2)  # (thread, second)
        assert not changed[:, :200].any()
        assert not changed[:, int(span.end_s) - before.start_s :].any()
        assert after.values[list(span.cpus), 200:260, after.schema.index("other")].mean() > 0.9
        assert (span.anomaly, span.onset_s) == ("hung-job", ONSET_S)
        assert np.allclose(after.values.sum(axis=2), 1, atol=1e-5)


def test_a_hung_rank_stops_one_thread_of_all_nodes_of_the_job(healthy):
    faulty = with_fault(healthy, JobFault("1", "hung-rank", ONSET_S), read_signatures(None), 0)
    idle = [trace.values[:, 220:400, trace.schema.index("other")].mean(axis=1) for trace in faulty]
    assert (np.concatenate(idle) > 0.9).sum() == 1


def test_a_job_that_does_not_run_then_is_refused(healthy):
    with pytest.raises(SettingsError, match="job '99' does not run at second"):
        with_fault(healthy, JobFault("99", "hung-job", ONSET_S), read_signatures(None), 0)
