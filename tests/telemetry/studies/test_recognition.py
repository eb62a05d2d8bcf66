"""Recognition of programs on drawn features: known ones are named, others are unknown, and F1 is right on paper."""

from __future__ import annotations

import numpy as np
import pytest

from clustertwin.telemetry.studies.recognition import (
    UNKNOWN,
    Guess,
    Recogniser,
    judge,
    least_confidence,
    macro_f1,
    nearest_centroid,
    random_forest,
)


def drawn(centres: dict[str, tuple[float, float]], seed: int, rows: int = 20) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.normal(centre, 0.1, (rows, 2)) for centre in centres.values()])
    return x, np.repeat(list(centres), rows)


KNOWN = {"a": (0.0, 0.0), "b": (3.0, 0.0), "c": (0.0, 3.0)}


@pytest.mark.medium
@pytest.mark.parametrize("recognise", [nearest_centroid, random_forest])
def test_every_known_program_is_named(recognise: Recogniser) -> None:
    x, names = drawn(KNOWN, 0)
    again, true = drawn(KNOWN, 1)
    assert (recognise(x, names, again).name == true).all()


def test_a_program_that_was_not_learnt_is_unknown() -> None:
    x, names = drawn(KNOWN, 0)
    others, _ = drawn({"d": (3.0, 3.0)}, 1)
    again, true = drawn(KNOWN, 2)
    guess = nearest_centroid(x, names, np.concatenate([again, others]))
    expected = np.concatenate([true, np.full(len(others), UNKNOWN)])
    least = least_confidence([expected], [guess])
    result = judge(expected, guess.named(least))
    assert (result.accuracy, result.unknown_recall, result.known_accuracy) == (1, 1, 1)
    assert (guess.named(-np.inf) != UNKNOWN).all()
    assert (guess.named(np.inf) == UNKNOWN).all()


def test_the_least_confidence_is_the_one_with_the_highest_f1() -> None:
    """Two guesses are right and sure, one of a foreign program is unsure."""
    guess = Guess(np.array(["a", "b", "a"]), np.array([0.9, 0.8, 0.3]))
    least = least_confidence([np.array(["a", "b", UNKNOWN])], [guess])
    assert 0.3 < least <= 0.8


def test_macro_f1_counts_a_wrong_name_against_both_programs() -> None:
    true, said = np.array(["a", "a", "b", UNKNOWN]), np.array(["a", "b", "b", "b"])
    # a: 2·1/(2+1), b: 2·1/(1+3), unknown: 0
    assert macro_f1(true, said) == pytest.approx((2 / 3 + 1 / 2 + 0) / 3)
    assert judge(true, said).unknown_recall == 0
