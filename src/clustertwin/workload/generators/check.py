"""The public check of generators: one that passes keeps the contract. Ours are checked by it; check yours."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from clustertwin.core.errors import OutputError
from clustertwin.workload.generators import load, save
from clustertwin.workload.generators.contract import Generator, sizes
from clustertwin.workload.jobs import COLUMNS, Jobs
from clustertwin.workload.machine_size import machine_size


def check_generator(generator: Generator, log: Jobs, name: str | None = None, n: int | None = None) -> None:
    """Raise AssertionError, saying what is broken; `name` (of our table) also checks saving and loading."""
    n = n or len(log) + len(log) // 2
    fitted = generator.fit(log, np.random.default_rng(1))
    jobs = fitted.sample(n, np.random.default_rng(2))
    assert len(jobs) == n, f"asked for {n} jobs, got {len(jobs)}"
    assert np.array_equal(jobs.id, np.arange(1, n + 1)), "ids do not count from 1"
    assert np.all(np.diff(jobs.submit_s) >= 0), "jobs are not in the order of submission"
    assert np.all(jobs.run_s >= 0), "a run time below zero"
    assert np.all(np.isfinite(jobs.submit_s)), "a submission at no time"
    assert np.all(sizes(jobs) >= 1), "a job of no size"
    assert np.all(sizes(jobs) <= machine_size(log)), "a job larger than the machine"
    again = fitted.sample(n, np.random.default_rng(2))
    assert _same(jobs, again), "the same seed gave other jobs"
    other = fitted.sample(n, np.random.default_rng(3))
    assert not _same(jobs, other), "another seed gave the same jobs"
    one = fitted.sample(1, np.random.default_rng(4))
    assert len(one) == 1, "one job was asked for"
    if name is not None:
        _check_storage(fitted, name, jobs)


def _check_storage(fitted: object, name: str, jobs: Jobs) -> None:
    with tempfile.TemporaryDirectory() as directory:
        try:
            save(fitted, name, Path(directory) / "model")  # type: ignore[arg-type]
        except OutputError as refused:
            assert "pickle" in str(refused), f"cannot be saved: {refused}"  # noqa: PT017
            return
        back = load(Path(directory) / "model").sample(len(jobs), np.random.default_rng(2))
    assert _same(jobs, back), "saved and loaded, it gives other jobs"


def _same(a: Jobs, b: Jobs) -> bool:
    return all(np.array_equal(getattr(a, column), getattr(b, column)) for column in COLUMNS)
