"""What a learned policy was trained for, and the warning outside of it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from clustertwin.core.errors import InputError
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.policies.learned import initial_weights, learned, read_learned
from clustertwin.workload.policies.trained_range import range_from, range_of
from clustertwin.workload.simulator import simulate
from clustertwin.workload.simulator.admission import admit


def log(limit_s: float = 600.0, cpus: int = 4, slack: float = 2.0) -> Jobs:
    n = 100
    return Jobs.build(np.arange(n), np.full(n, limit_s / slack), request_s=np.full(n, limit_s), cpus=np.full(n, cpus))


def test_the_own_log_is_inside():
    records = admit(log(), 16).records
    assert range_of(records, 16).outside(records, 16) == []


@pytest.mark.parametrize(
    ("other", "procs", "reason"),
    [
        (log(), 64, "64 processors, in training it had 16"),
        (log(limit_s=86_400.0), 16, "100% of the time limits"),
        (log(cpus=16), 16, "100% of the jobs do not take"),
    ],
)
def test_another_machine_limit_or_size_is_named(other: Jobs, procs: int, reason: str):
    trained = range_of(admit(log(), 16).records, 16)
    assert any(reason in phrase for phrase in trained.outside(admit(other, procs).records, procs))


def test_a_higher_load_than_in_training_is_named():
    n = 1000
    jobs = Jobs.build(4.0 * np.arange(n), np.full(n, 10.0), request_s=np.full(n, 20.0), cpus=np.full(n, 4))
    busier = Jobs.build(2.5 * np.arange(n), np.full(n, 10.0), request_s=np.full(n, 20.0), cpus=np.full(n, 4))
    trained = range_of(admit(jobs, 16).records, 16)
    assert trained.most_load == pytest.approx(0.625, rel=0.01)
    assert trained.outside(admit(busier, 16).records, 16) == [
        "the offered load is 100%, in training it was at most 63%"
    ]
    assert trained.outside(admit(busier, 16).records[:900], 16) == []


def test_real_limits_are_outside_of_a_training_that_knew_run_times():
    trained = range_of(admit(log(slack=1.0), 16).records, 16)
    assert trained.knows_run_times
    assert trained.outside(admit(log(), 16).records, 16) == [
        "in training the limits were the run times, here they are not"
    ]


@pytest.mark.medium
def test_a_schedule_remarks_that_its_policy_was_not_trained_for_the_log():
    trained = range_of(admit(log(), 16).records, 16)
    policy = learned(initial_weights(1, np.random.default_rng(0)), "mine", trained)
    assert not any("not trained" in remark for remark in simulate(log(), 16, policy).remarks)
    assert any("'mine' was not trained" in remark for remark in simulate(log(), 64, policy).remarks)


def test_a_file_brings_its_range_and_an_older_one_its_machine(tmp_path: Path):
    checkpoint = pytest.importorskip("clustertwin.workload.rl.checkpoint")
    from dataclasses import asdict

    weights, trained = initial_weights(1, np.random.default_rng(0)), range_of(admit(log(), 16).records, 16)
    checkpoint.save(
        tmp_path / "new.safetensors", {"policy": weights}, {"range": asdict(trained), "rules": {"procs": 16}}
    )
    assert read_learned(tmp_path / "new.safetensors").trained == trained
    checkpoint.save(tmp_path / "old.safetensors", {"policy": weights}, {"rules": {"procs": 16}})
    old = read_learned(tmp_path / "old.safetensors").trained
    assert old is not None
    assert old.outside(admit(log(limit_s=86_400.0), 16).records, 16) == []
    assert range_from({}) is None


@pytest.mark.parametrize(
    ("weights", "values"),
    [
        (np.zeros(0), {}),
        (np.zeros((12, 3)), {}),
        (np.float64(1.0), {}),
        (np.zeros(12), []),
        (np.zeros(12), {"range": {}}),
        (np.zeros(12), {"range": {"request_s": [1], "size_ratio": [0, 1]}}),
        (np.zeros(12), {"rules": {"procs": "many"}}),
    ],
)
def test_a_file_that_is_no_policy_is_refused_with_a_sentence(tmp_path: Path, weights, values):
    checkpoint = pytest.importorskip("clustertwin.workload.rl.checkpoint")
    checkpoint.save(tmp_path / "x.safetensors", {"policy": np.asarray(weights)}, values)
    with pytest.raises(InputError, match="policy"):
        read_learned(tmp_path / "x.safetensors")


def test_a_pipe_is_no_policy(tmp_path: Path):
    pytest.importorskip("safetensors")
    os.mkfifo(tmp_path / "x.safetensors")
    with pytest.raises(InputError, match="not a regular file"):
        read_learned(tmp_path / "x.safetensors")
