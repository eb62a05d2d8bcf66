"""Calibrate a detector: an autoencoder and normal moments -> fitted views and their combination."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.detection.detector import Detector, surprise_of
from clustertwin.telemetry.detection.detector_store import with_sha256
from clustertwin.telemetry.detection.features.observation import join, observe
from clustertwin.telemetry.detection.views.combination import fit_combination
from clustertwin.telemetry.detection.views.contract import CalibrationData, DetectorSettings
from clustertwin.telemetry.detection.views.p_value import MIN_SAMPLE
from clustertwin.telemetry.detection.views.view_table import make_views
from clustertwin.telemetry.models.model_store import StoredModel
from clustertwin.telemetry.moments.moment import LENGTH_S, WINDOW_S, Moment

_SLOWED_EVERY = 4  # one reference moment in four gets copies with less activity


def calibrate(
    stored: StoredModel,
    normal: Iterable[Moment],
    settings: DetectorSettings = DetectorSettings(),
    learn: Iterable[Moment] | None = None,
    views: Iterable[str] | None = None,
) -> Detector:
    """Fit a detector to normal moments that the model was not trained on.

    Models of normal behaviour are fitted to `learn`, which may contain training data of the model, or else to the first
    part of `normal`. P-values come from moments that nothing else was fitted to. Masked threads are ignored. `views`
    are the names of the views to use; by default all of them.
    """
    unfitted = make_views(settings, views)
    data = calibration_data(stored, normal, settings, learn)
    fitted = {name: view.fit(data) for name, view in unfitted.items()}
    fitted = {name: view for name, view in fitted.items() if view.arrays()}
    surprise = surprise_of(fitted, data.held_out)
    combination = fit_combination(data.held_out, surprise)
    if np.isnan(combination.score(data.held_out, surprise)).all():
        windows = int(data.held_out.over(WINDOW_S).known.sum())
        raise SettingsError(
            f"this detector could not score any thread: {windows} normal windows are held out, and a table needs "
            f"{MIN_SAMPLE} of the same kind (threads that a job holds, threads without a job, threads of unknown jobs)"
        )
    return with_sha256(Detector(stored, settings, fitted, combination))


def calibration_data(
    stored: StoredModel, normal: Iterable[Moment], settings: DetectorSettings, learn: Iterable[Moment] | None = None
) -> CalibrationData:
    """The observations that `calibrate` fits views to."""
    if learn is None:
        reference, held_out = _split(list(normal), settings.learn)
    else:
        reference, held_out = list(learn), list(normal)
    measured = sum(len(moment) for moment in reference)
    slowed = [slower for moment in reference[::_SLOWED_EVERY] for slower in _slowed_copies(moment)]
    usual = [observe(stored, moment, settings.enough) for moment in [*reference, *slowed]]
    checked = [observe(stored, moment, settings.enough) for moment in held_out]
    if not usual or not any(observation.over(WINDOW_S).known.any() for observation in checked):
        raise SettingsError("nothing to calibrate on: no moment has a settled thread with enough valid seconds")
    return CalibrationData(join(usual), measured, join(checked))


def _split(normal: list[Moment], part: float) -> tuple[list[Moment], list[Moment]]:
    """The first part of the time, and the moments that share no second with it (or all, if there are none)."""
    if not normal:
        return [], []
    end_s = normal[-1].end_s - (normal[-1].end_s - normal[0].end_s) * (1 - part)
    first = [moment for moment in normal if moment.end_s <= end_s]
    return first, [moment for moment in normal if moment.end_s > end_s + LENGTH_S] or normal


def _slowed_copies(moment: Moment) -> list[Moment]:
    """The unallocated threads with half of their activity and with none.

    A node that is quieter than during calibration is healthy, so less activity without a job must look normal.
    """
    unallocated, _ = moment.with_peers(np.flatnonzero(moment.job < 0))
    return [replace(unallocated, values=_slowed(unallocated, part)) for part in (0.5, 0.0)] if len(unallocated) else []


def _slowed(moment: Moment, part: float) -> NDArray[np.float32]:
    """The values with all channels of a simplex but the last multiplied by `part`."""
    values = moment.values.copy()
    for *active, rest in moment.schema.simplexes.values():
        values[..., active] *= np.float32(part)
        values[..., rest] = moment.valid - values[..., active].sum(-1)
    return values
