"""The public check of generators. A generator that passes keeps the contract; use it to test your own."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import OutputError, SettingsError
from clustertwin.workload.generators import load, save
from clustertwin.workload.generators.contract import Fitted, Generator
from clustertwin.workload.generators.superposition import concatenate
from clustertwin.workload.generators.workload_change import WorkloadChange
from clustertwin.workload.jobs import COLUMNS, Jobs
from clustertwin.workload.machine_size import counted_sizes, machine_size

WHAT_IF_JOBS = 2_000
#: The load of a synthetic log varies between seeds; a change of a factor of 4 must arrive within a factor of 2.
LOAD_FACTOR, TOLERANCE = 4, 2.0
NEW_START_S = 1_893_456_000.0  # 1 January 2030


def check_generator(generator: Generator, log: Jobs, name: str | None = None, n: int | None = None) -> None:
    """Raise an AssertionError that says what is broken. With `name` (of the table), also check saving and loading."""
    n = n or len(log) + len(log) // 2
    fitted = generator.fit(log, np.random.default_rng(1))
    jobs = fitted.sample(n, np.random.default_rng(2))
    assert len(jobs) == n, f"asked for {n} jobs, got {len(jobs)}"
    _check_jobs(jobs, log, machine_size(log))
    assert _same(jobs, fitted.sample(n, np.random.default_rng(2))), "the same seed gave different jobs"
    assert not _same(jobs, fitted.sample(n, np.random.default_rng(3))), "another seed gave the same jobs"
    assert len(fitted.sample(1, np.random.default_rng(4))) == 1, "asked for one job, got another number"
    if name is not None:
        _check_storage(fitted, name, jobs)
    _check_what_if(fitted, log)


def _check_jobs(jobs: Jobs, log: Jobs, machine: int) -> None:
    """Properties that every synthetic log must have."""
    assert np.array_equal(jobs.id, np.arange(1, len(jobs) + 1)), "the ids do not count from 1"
    assert np.all(np.isfinite(jobs.submit_s)), "a submit time is not finite"
    assert np.all(np.diff(jobs.submit_s) >= 0), "the jobs are not in the order of submission"
    assert np.all(jobs.run_s >= 0), "a run time is below zero"
    assert np.all(jobs.run_s > 0) or np.any(log.run_s == 0), "a run time is 0 s, but no real job ran for 0 s"
    assert np.all(counted_sizes(jobs) >= 1), "a job has no size"
    assert np.all(counted_sizes(jobs) <= machine), "a job is larger than the machine"


def _check_what_if(fitted: Fitted, log: Jobs) -> None:
    """Every change is applied, or refused with a SettingsError that gives a reason."""
    n = max(WHAT_IF_JOBS, len(log))
    base = fitted.sample(n, np.random.default_rng(5))
    unchanged = concatenate(fitted.what_if(n, np.random.default_rng(5), WorkloadChange()))
    assert _same(base, unchanged), "what-if without a change gave other jobs than the stream"
    days = _days(base) / 2

    if jobs := _changed(fitted, log, WorkloadChange(load=LOAD_FACTOR), LOAD_FACTOR * n):
        _check_load(_days(base) / _days(jobs), f"the load {LOAD_FACTOR}")
    if jobs := _changed(fitted, log, WorkloadChange(load=1 / LOAD_FACTOR), n // LOAD_FACTOR):
        _check_load(_days(base) / _days(jobs), f"the load 1/{LOAD_FACTOR}")
        again = _changed(fitted, log, WorkloadChange(load=1 / LOAD_FACTOR), n // LOAD_FACTOR)
        assert again is not None, "the same change was first applied and then refused"
        assert _same(jobs, again), "the same seed and change gave different jobs"
    user, size = _most_frequent(base.user), _most_frequent(counted_sizes(base))
    if jobs := _changed(fitted, log, WorkloadChange(users={str(user): 0.0}), WHAT_IF_JOBS):
        assert np.all(jobs.user != user), "a user with the factor 0 still submits jobs"
    if jobs := _changed(fitted, log, WorkloadChange(sizes={str(size): 0.0}), WHAT_IF_JOBS):
        assert np.all(counted_sizes(jobs) != size), "a size with the factor 0 still occurs"
    for other in (2 * machine_size(log), max(1, int(counted_sizes(base).max()) // 2)):
        _changed(fitted, log, WorkloadChange(machine=other), WHAT_IF_JOBS)
    if jobs := _changed(fitted, log, WorkloadChange(days=days), None):
        assert jobs.submit_s[-1] < days * 86400, "a job is submitted after the requested days"
    if jobs := _changed(fitted, log, WorkloadChange(start_s=NEW_START_S), WHAT_IF_JOBS):
        assert jobs.epoch_s == NEW_START_S, "the log does not start on the requested day"


def _changed(fitted: Fitted, log: Jobs, change: WorkloadChange, n: int | None) -> Jobs | None:
    """The jobs of a changed workload, checked; None if the generator refuses the change."""
    try:
        jobs = concatenate(fitted.what_if(n, np.random.default_rng(6), change))
    except SettingsError as refusal:
        assert str(refusal), "a change is refused without a reason"  # noqa: PT017
        return None
    assert n is None or len(jobs) == n, f"asked for {n} jobs of a changed workload, got {len(jobs)}"
    _check_jobs(jobs, log, change.machine or machine_size(log))
    return jobs


def _check_load(ratio: float, change: str) -> None:
    """`ratio`: jobs per day over the requested number; 1 is exact."""
    assert 1 / TOLERANCE <= ratio <= TOLERANCE, f"{change} gave {ratio:.2f} times the requested jobs per day"


def _days(jobs: Jobs) -> float:
    return float(jobs.submit_s[-1] - jobs.submit_s[0]) / 86400


def _most_frequent(values: NDArray[np.int64]) -> int:
    distinct, counts = np.unique(values, return_counts=True)
    return int(distinct[counts.argmax()])


def _check_storage(fitted: Fitted, name: str, jobs: Jobs) -> None:
    with tempfile.TemporaryDirectory() as directory:
        try:
            save(fitted, name, Path(directory) / "model")
        except OutputError as refusal:
            assert "pickle" in str(refusal), f"the generator cannot be saved: {refusal}"  # noqa: PT017
            return
        loaded = load(Path(directory) / "model").sample(len(jobs), np.random.default_rng(2))
    assert _same(jobs, loaded), "the saved and loaded generator gives other jobs"


def _same(a: Jobs, b: Jobs) -> bool:
    return all(np.array_equal(getattr(a, column), getattr(b, column)) for column in COLUMNS)
