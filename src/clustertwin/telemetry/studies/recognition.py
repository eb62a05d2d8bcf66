"""Recognise a program, or say that it is unknown: features of known programs, features -> names with a confidence.

The anchor is Taxonomist: a classifier of known programs whose guess counts only if it is confident enough. The least
confidence is chosen on other programs than those that are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require

Array = NDArray[np.float64]
Names = NDArray[np.str_]

UNKNOWN = ""  # the name of every program that was not learnt
_STEPS = 512  # levels of confidence that are tried


@dataclass(frozen=True, slots=True)
class Guess:
    """For each row the most likely of the known programs, and how sure the guess is; higher is surer."""

    name: Names
    confidence: Array

    def named(self, least: float) -> Names:
        """The names; `UNKNOWN` where the confidence is below `least`."""
        return np.where(self.confidence >= least, self.name, UNKNOWN)


Recogniser = Callable[[Array, Names, Array], Guess]  # features and names of known programs, features to name


def nearest_centroid(known: Array, names: Names, x: Array) -> Guess:
    """The program with the closest mean, in units of the spread within programs; the confidence is minus the distance.

    >>> nearest_centroid(np.array([[0.0], [0.2], [4.0], [4.2]]), np.array(["a", "a", "b", "b"]), np.array([[3.9]])).name
    array(['b'], dtype='<U1')
    """
    programs = np.unique(names)
    centres = np.stack([known[names == program].mean(0) for program in programs])
    within = known - centres[np.searchsorted(programs, names)]
    # The spread between programs keeps a feature that is constant within each of them from deciding alone.
    scale = within.std(0) + 0.05 * known.std(0) + 1e-6
    distance = np.sqrt((((x[:, None] - centres) / scale) ** 2).mean(2))  # (row, program)
    closest = distance.argmin(1)
    return Guess(programs[closest], -distance[np.arange(len(x)), closest])


def random_forest(known: Array, names: Names, x: Array) -> Guess:
    """One forest for each program against the rest, as in Taxonomist; the confidence is the highest probability."""
    ensemble: Any = require("sklearn.ensemble", "models")
    programs = np.unique(names)
    chance = np.empty((len(x), len(programs)))
    for i, program in enumerate(programs):
        forest = ensemble.RandomForestClassifier(n_estimators=100, class_weight="balanced", random_state=0)
        chance[:, i] = forest.fit(known, names == program).predict_proba(x)[:, 1]
    likeliest = chance.argmax(1)
    return Guess(programs[likeliest], chance[np.arange(len(x)), likeliest])


@dataclass(frozen=True, slots=True)
class Recognition:
    """How well programs were named. `macro_f1` weighs every name alike, and `UNKNOWN` is one of them."""

    windows: int
    accuracy: float
    macro_f1: float
    unknown_recall: float  # windows of programs that were not learnt, and are called unknown
    known_accuracy: float  # windows of programs that were learnt, and are named rightly


def judge(true: Names, predicted: Names) -> Recognition:
    """Compare names. `UNKNOWN` is a name like the others."""
    right, known = true == predicted, true != UNKNOWN
    return Recognition(
        len(true),
        float(right.mean()),
        macro_f1(true, predicted),
        float(right[~known].mean()) if not known.all() else float("nan"),
        float(right[known].mean()) if known.any() else float("nan"),
    )


def macro_f1(true: Names, predicted: Names) -> float:
    """The mean over the true names of F1.

    >>> round(macro_f1(np.array(["a", "a", "b"]), np.array(["a", "b", "b"])), 3)
    0.667
    """
    scores = []
    for name in np.unique(true):
        hits = int(((true == name) & (predicted == name)).sum())
        scores.append(2 * hits / int((true == name).sum() + (predicted == name).sum()))
    return float(np.mean(scores))


def least_confidence(true: Sequence[Names], guesses: Sequence[Guess]) -> float:
    """The confidence below which a program is unknown: the level with the highest macro-F1 over these folds."""
    names, pooled = np.concatenate(true), np.concatenate([guess.confidence for guess in guesses])
    levels = np.unique(np.quantile(pooled, np.linspace(0, 1, _STEPS)))
    scores = [macro_f1(names, np.concatenate([guess.named(level) for guess in guesses])) for level in levels]
    return float(levels[int(np.argmax(scores))])
