"""Calibrate a detector: an autoencoder and normal moments -> what is usual, and how strange the usual looks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.detection.density import fit_density
from clustertwin.telemetry.detection.look import FREE, HELD, LENGTHS_S, UNKNOWN, Look, join, look
from clustertwin.telemetry.detection.moment import LENGTH_S, Moment
from clustertwin.telemetry.detection.storage import sealed
from clustertwin.telemetry.detection.tail import ENOUGH, Tail, fit_tail
from clustertwin.telemetry.detection.views import Detector, Habit, Settings, size, standing, strangest
from clustertwin.telemetry.models.store import Stored


def calibrate(
    stored: Stored,
    normal: Iterable[Moment],
    settings: Settings = Settings(),
    learn: Iterable[Moment] | None = None,
) -> Detector:
    """Learn what is usual and how strange the usual looks, from normal moments that the model was not trained on.

    What is usual is learnt from `learn`, which the model may know, and else from the first part of `normal`; how
    strange normal threads look, from moments that nothing else was learnt from. A masked thread teaches nothing.
    """
    moments = list(normal)
    if learn is None:
        end_s = moments[-1].end_s - (moments[-1].end_s - moments[0].end_s) * (1 - settings.learn) if moments else 0
        learn = (moment for moment in moments if moment.end_s <= end_s)
        # No second is on both sides.
        moments = [moment for moment in moments if moment.end_s > end_s + LENGTH_S] or moments
    learn = list(learn)
    learn += [quieter for moment in learn[::4] for quieter in _quieter(moment)]
    usual = [look(stored, moment, settings.enough) for moment in learn]
    held_out = [look(stored, moment, settings.enough) for moment in moments]
    if not sum(int(one.known[0].sum()) for one in held_out) or not usual:
        raise SettingsError("nothing to calibrate on: no settled, valid window among the moments")
    return sealed(_calibrated(stored, settings, join(usual), join(held_out)))


def _quieter(moment: Moment) -> list[Moment]:
    """The threads that no job holds, at half and at none of their activity.

    A machine that is stiller than any that was seen is not broken: doing nothing is usual where nothing is to be done.
    """
    free, _ = moment.among(np.flatnonzero(moment.job < 0))
    return [replace(free, values=_slowed(free, part)) for part in (0.5, 0.0)] if len(free) else []


def _slowed(moment: Moment, part: float) -> NDArray[np.float32]:
    values = moment.values.copy()
    for *active, rest in moment.schema.simplexes.values():
        values[..., active] *= np.float32(part)
        values[..., rest] = moment.valid - values[..., active].sum(-1)
    return values


def _calibrated(stored: Stored, settings: Settings, usual: Look, normal: Look) -> Detector:
    errors = _tails(normal.kind, size(normal.error), normal.known[0])
    habits = tuple(_habits(settings, usual, normal, i) for i in range(len(LENGTHS_S)))
    apart = tuple(
        _tails(np.minimum(d.size, 3), d.distance, (d.size >= 2) & k)
        for d, k in zip(normal.deviation, normal.known, strict=True)
    )
    views = Detector(stored, settings, errors, habits, apart, {})
    whole = _tails(standing(normal), strangest(views.surprise(normal)), normal.known[0])
    return Detector(stored, settings, errors, habits, apart, whole)


def _habits(settings: Settings, usual: Look, normal: Look, i: int) -> dict[int, Habit]:
    habits = {}
    for k in (FREE, HELD, UNKNOWN):
        learn, check = usual.known[i] & (usual.kind == k), normal.known[i] & (normal.kind == k)
        if min(learn.sum(), check.sum()) >= ENOUGH:
            s = usual.statistics[i]
            density = fit_density(s.features[learn], s.mean[learn], settings.components, settings.seed)
            strangeness = density.strangeness(normal.statistics[i].features[check])
            habits[k] = Habit(density, fit_tail(strangeness))
    return habits


def _tails(kind: NDArray[np.integer], x: NDArray[np.floating], known: NDArray[np.bool_]) -> dict[int, Tail]:
    """A tail for each kind of which there is enough."""
    found, count = np.unique(kind[known], return_counts=True)
    return {int(k): fit_tail(x[known & (kind == k)]) for k, n in zip(found, count, strict=True) if n >= ENOUGH}
