"""A cached simulation loop is compiled again when a function that it calls changes in another file."""

import runpy
from pathlib import Path

import pytest

from clustertwin.core.compiled import _reachable
from clustertwin.workload.simulator.conservative_backfilling import run_conservative
from clustertwin.workload.simulator.easy_backfilling import run_head_first
from clustertwin.workload.simulator.environment.schedule_batch import step_all

OUTER = """
from runpy import run_path
from numba import float64
from clustertwin.core.compiled import compiled_for

inner = run_path(r"{inner}")["inner"]

@compiled_for(float64(float64))
def outer(x):
    return inner(x) + 1
"""
INNER = """
from numba import njit

@njit
def inner(x):
    return {factor} * x
"""


def test_a_change_in_a_called_file_reaches_the_loop(tmp_path: Path):
    inner, outer = tmp_path / "inner.py", tmp_path / "outer.py"
    outer.write_text(OUTER.format(inner=inner))
    for factor, expected in ((2, 5.0), (3, 7.0)):
        inner.write_text(INNER.format(factor=factor))
        assert runpy.run_path(str(outer))["outer"](2.0) == expected


@pytest.mark.parametrize(
    ("loop", "files"),
    [
        (run_head_first, {"easy_backfilling", "fair_share", "machine_state", "next_event", "policy_scores"}),
        (
            run_conservative,
            {
                "availability_profile", "conservative_backfilling", "fair_share", "machine_state", "next_event",
                "policy_scores",
            },
        ),
        (
            step_all,
            {
                "decision_points", "easy_backfilling", "fair_share", "learned", "machine_state", "next_event",
                "policy_scores", "schedule_batch",
            },
        ),
    ],
)  # fmt: skip
def test_the_stamp_of_each_loop_covers_every_file_compiled_into_it(loop, files: set[str]):
    sources = {Path(function.__code__.co_filename) for function in _reachable(loop.__wrapped__)}
    assert {source.stem for source in sources} == files
