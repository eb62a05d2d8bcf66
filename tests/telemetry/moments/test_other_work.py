"""The busy time of a job's threads against the CPU time of its own cgroup."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clustertwin.core.channels import CPU, JOB
from clustertwin.core.traces import JobSpan
from clustertwin.telemetry.moments.moment import JobMoment, Moment, assemble
from clustertwin.telemetry.moments.other_work import other_work


def moment(user: float, own: float, start_s: int = 0) -> Moment:
    """Job 7 on threads 0 and 1 of n1, which are busy for `user` of the time; its cgroup used `own` of it."""
    values = np.zeros((3, 300, len(CPU)), np.float32)
    values[:2, :, 0], values[:2, :, 3], values[2, :, 0] = user, 1 - user, 1.0
    block = ("n1", (0, 1, 2), values, np.ones((3, 300), np.bool_))
    found = assemble(1000, CPU, [block], [JobSpan("7", "n1", (0, 1), start_s, 2000)])
    channels = np.full((1, 300, len(JOB)), np.nan, np.float32)
    channels[0, :, JOB.index("job_cpu")] = own
    return replace(found, job_channels=JobMoment(JOB, ("7",), np.zeros(1, np.int32), channels))


@pytest.mark.parametrize(
    ("user", "own", "taken"), [(1.0, 1.0, 0.0), (1.0, 0.5, 0.5), (0.8, 0.2, 0.75), (0.5, 0.6, 0.0), (0.01, 0.0, 0.0)]
)
def test_what_the_cgroup_did_not_use_other_work_took(user: float, own: float, taken: float) -> None:
    (work,) = other_work(moment(user, own))
    assert (work.job, work.node) == ("7", "n1")
    assert work.taken == pytest.approx(taken, abs=1e-5)
    assert work.busy == pytest.approx(user, abs=1e-5)


def test_only_the_seconds_of_the_job_count() -> None:
    young = moment(1.0, 0.5, start_s=990)
    young.values[:2, :-10] = 0
    (work,) = other_work(young)
    assert work.taken == pytest.approx(0.5)


def test_an_unknown_cgroup_or_a_job_that_has_ended_gives_nothing() -> None:
    assert other_work(moment(1.0, float("nan"))) == []
    ended = moment(1.0, 0.5)
    assert other_work(replace(ended, jobs=(), job=np.full(3, -1, np.int32))) == []
    assert other_work(replace(ended, job_channels=None)) == []
