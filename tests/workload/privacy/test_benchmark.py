"""A short slice of benchmarks/privacy.py: the curve of fidelity and attacks against ε."""

from __future__ import annotations

import math
from importlib.util import find_spec

import pytest
from benchmarks.privacy import HEAD, holdout, measure
from tests.workload.generators.conftest import office_log

pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn is not installed")


@pytest.mark.slow
def test_the_curve_shows_that_crossover_leaks_and_the_private_model_does_not() -> None:
    crossover, private = measure(office_log(users=12), 64, (math.inf,), seeds=1, public_load=True)
    assert crossover.cards[0].attacks.user_days.synthetic.auc > 0.9
    assert private.cards[0].attacks.user_days.synthetic.auc < 0.6
    assert len(private.cells()) == len(holdout(crossover.cards[0])) == len(HEAD)
