"""The public check of a view: a view and normal data -> nothing, or an AssertionError that names the broken rule.

If you write a view, call `check_view(MyView, data)` with data from `calibration_data`. Our tests call it for every view
of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.features.observation import LENGTHS_S, Observation, join, observe
from clustertwin.telemetry.detection.views.contract import Arrays, CalibrationData, DetectorSettings, Surprise, View

MAX_RATE = 0.05  # share of held-out threads that may have a surprise above 2; 0.01 is ideal


def check_view(
    make: Callable[[DetectorSettings], View],
    data: CalibrationData,
    settings: DetectorSettings = DetectorSettings(),
    others: Mapping[str, View] | None = None,
) -> None:
    """Fit, surprise, expected values, storage. `others` are fitted views whose expectation the view uses, if any."""
    view = make(settings)
    assert view.length_s in LENGTHS_S, f"length_s is {view.length_s}, not one of {LENGTHS_S}"
    _check_unfitted(view, data.held_out)
    fitted = view.fit(data)
    assert not view.arrays(), "fit changes the view instead of returning a fitted one"
    _check_arrays(fitted.arrays())
    assert _same(fitted.arrays(), view.fit(data).arrays()), "the same data and settings give different tables"
    surprise = fitted.surprise(data.held_out, {})
    _check_surprise(surprise, data.held_out, view.length_s)
    _check_independence(fitted, data.held_out, settings)
    _check_expected(fitted.expected(data.held_out, others or {}), data.held_out)
    _check_storage(view, fitted, surprise, data.held_out)


def _check_unfitted(view: View, normal: Observation) -> None:
    assert not view.arrays(), "an unfitted view has arrays"
    assert np.isnan(view.surprise(normal, {})).all(), "an unfitted view gives a surprise"


def _check_arrays(arrays: Arrays) -> None:
    assert arrays, "the fitted view has no arrays"
    for key, array in arrays.items():
        assert "/" in key, f"{key!r} does not begin with a name of the view"
        assert array.dtype == np.float32, f"{key} is {array.dtype}, not float32"
        assert np.isfinite(array).all(), f"{key} has a value that is not finite"


def _check_surprise(surprise: Surprise, normal: Observation, length_s: int) -> None:
    assert surprise.shape == (len(normal),), f"surprise has shape {surprise.shape} for {len(normal)} threads"
    known = ~np.isnan(surprise)
    assert known.any(), "the surprise of every normal thread is unknown"
    assert not (known & ~normal.over(length_s).known).any(), "a thread without enough valid seconds has a surprise"
    assert np.isfinite(surprise[known]).all(), "a surprise is infinite"
    assert (surprise[known] >= 0).all(), "a surprise is negative"
    rate = float((surprise[known] > 2).mean())
    assert rate <= MAX_RATE, f"{rate:.1%} of normal threads have a surprise above 2; about 1 % should"


def _check_independence(view: View, normal: Observation, settings: DetectorSettings) -> None:
    """Moments are scored in batches and in parts, so the surprise of a thread must depend on its own job only."""
    first, second = (observe(normal.stored, moment, settings.enough) for moment in normal.moments[-2:])
    apart = np.concatenate([view.surprise(first, {}), view.surprise(second, {})])
    together = view.surprise(join([first, second]), {})
    assert np.allclose(apart, together, rtol=1e-3, atol=1e-3, equal_nan=True), (
        "the surprise of a thread depends on threads of other jobs"
    )


def _check_expected(expected: NDArray[np.float32], normal: Observation) -> None:
    schema = normal.stored.model.config.shape.schema
    assert expected.shape == (len(normal), len(schema)), f"expected has shape {expected.shape}"
    known = expected[~np.isnan(expected).any(1)]
    assert len(known), "no normal thread has an expectation"
    assert ((known > -0.01) & (known < 1.01)).all(), "an expected ratio lies outside [0, 1]"
    for name, channels in schema.simplexes.items():
        total = known[:, list(channels)].sum(1)
        assert np.allclose(total, 1, atol=0.02), f"the expected ratios of {name} do not sum to one"


def _check_storage(view: View, fitted: View, surprise: Surprise, normal: Observation) -> None:
    other = {"another-view/0/knots": np.zeros(3, np.float32)}
    restored = view.restore({**other, **fitted.arrays()})
    assert _same(restored.arrays(), fitted.arrays()), "restore gives different arrays"
    again = restored.surprise(normal, {})
    assert np.array_equal(again, surprise, equal_nan=True), "restore gives a different surprise"
    assert not view.restore(other).arrays(), "restore uses arrays of another view"


def _same(left: Arrays, right: Arrays) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(left[key], right[key]) for key in left)
