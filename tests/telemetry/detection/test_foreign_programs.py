"""The simulated programs and faults of `benchmarks/foreign_site.py` are what an exporter could see."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest

SECONDS, ONSET = 600, 300


@pytest.mark.medium
def test_every_share_of_every_program_with_every_fault_lies_between_0_and_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend("benchmarks")  # as `python benchmarks/foreign_site.py` sees it
    programs, faults = import_module("foreign_programs"), import_module("foreign_faults")
    for name, program in programs.PROGRAMS.items():
        for fault in (None, *(row for row in faults.FAULTS.values() if program.waits in row.waits)):
            work = program.run(4, SECONDS, np.random.default_rng(1))
            if fault is not None:
                fault.impose(faults.Scene(work, ONSET, 1, program.waits))
            shares = np.stack([work.user, work.system, work.iowait])
            assert shares.shape == (3, 4, SECONDS)
            assert shares.min() >= 0, name
            assert shares.max() <= 1, (name, fault)  # the site scales threads whose shares exceed 1 together
            assert (work.memory.min() >= 0) & (work.memory.max() <= 1), name


@pytest.mark.medium
def test_the_seconds_before_a_fault_are_those_of_a_healthy_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend("benchmarks")
    programs, faults = import_module("foreign_programs"), import_module("foreign_faults")
    program = programs.PROGRAMS["direct_solver"]
    healthy = program.run(4, SECONDS, np.random.default_rng(1))
    for fault in faults.FAULTS.values():
        work = program.run(4, SECONDS, np.random.default_rng(1))
        fault.impose(faults.Scene(work, ONSET, 1, program.waits))
        for series in ("user", "system", "iowait", "memory", "faults", "io_mb"):
            same = getattr(work, series)[..., :ONSET] == getattr(healthy, series)[..., :ONSET]
            assert same.all(), (fault.impose.__name__, series)
