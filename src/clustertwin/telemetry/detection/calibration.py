"""Calibrate a detector: an autoencoder and normal moments -> what is usual, and how strange the usual looks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import CPU
from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.detection.detector_store import sealed
from clustertwin.telemetry.detection.features.observation import FREE, HELD, LENGTHS_S, UNKNOWN, Look, join, look
from clustertwin.telemetry.detection.landmarks import find_landmarks
from clustertwin.telemetry.detection.views.all_views import (
    NOWHERE,
    Detector,
    Habit,
    Settings,
    size,
    standing,
    strangest,
)
from clustertwin.telemetry.detection.views.gaussian_mixture import fit_density
from clustertwin.telemetry.detection.views.p_value import ENOUGH, Tail, fit_surprise, fit_tail
from clustertwin.telemetry.detection.views.region_distance import Clearance, Regions, fit_clearance
from clustertwin.telemetry.models.model_store import Stored
from clustertwin.telemetry.moments.moment import LENGTH_S, Moment
from clustertwin.telemetry.simulation.signature import read_signatures

PLENTY = 5_000  # held-out windows of a kind; with fewer, what is learnt from is held out from itself in turn
TURNS = 10


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
    seen = sum(len(moment) for moment in learn)
    learn += [quieter for moment in learn[::4] for quieter in _quieter(moment)]
    usual = [look(stored, moment, settings.enough) for moment in learn]
    held_out = [look(stored, moment, settings.enough) for moment in moments]
    if not sum(int(one.known[0].sum()) for one in held_out) or not usual:
        raise SettingsError("nothing to calibrate on: no settled, valid window among the moments")
    return sealed(_calibrated(stored, settings, join(usual), seen, join(held_out)))


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


def _calibrated(stored: Stored, settings: Settings, usual: Look, seen: int, normal: Look) -> Detector:
    """The first `seen` rows of what is usual were seen, the others made up."""
    errors = _tails(normal.kind, size(normal.error), normal.known[0])
    habits = tuple(_habits(settings, usual, seen, normal, i) for i in range(len(LENGTHS_S)))
    apart = tuple(
        _tails(np.minimum(d.size, 3), d.distance, (d.size >= 2) & k)
        for d, k in zip(normal.deviation, normal.known, strict=True)
    )
    regions = _regions(stored)
    clearance = _clearance(settings, regions, normal)
    views = Detector(stored, settings, errors, habits, apart, {}, regions, clearance)
    strange = strangest(views.surprise(normal))
    return replace(views, whole=_tails(standing(normal), strange, normal.known[0], fit_surprise))


def _regions(stored: Stored) -> Regions:
    """Where what went wrong in recorded campaigns lies; nowhere for channels that were not recorded."""
    if stored.model.config.shape.schema != CPU:
        return NOWHERE
    return find_landmarks(stored, read_signatures()).regions()


def _clearance(settings: Settings, regions: Regions, normal: Look) -> dict[int, Clearance]:
    if not regions.names:
        return {}
    rows = {k: np.flatnonzero(normal.known[0] & (normal.kind == k)) for k in (FREE, HELD, UNKNOWN)}
    return {
        k: fit_clearance(regions.apart(normal.embedding[mine]), settings.false_alarm_rate)
        for k, mine in rows.items()
        if len(mine) >= ENOUGH
    }


def _habits(settings: Settings, usual: Look, seen: int, normal: Look, i: int) -> dict[int, Habit]:
    habits = {}
    for k in (FREE, HELD, UNKNOWN):
        learn, check = usual.known[i] & (usual.kind == k), normal.known[i] & (normal.kind == k)
        if min(learn.sum(), check.sum()) >= ENOUGH:
            s = usual.statistics[i]
            density = fit_density(s.features[learn], s.mean[learn], settings.components, settings.seed)
            strangeness = density.strangeness(normal.statistics[i].features[check])
            learn[seen:] = False
            if len(strangeness) < PLENTY and learn.sum() >= 2 * ENOUGH:
                strangeness = np.append(strangeness, _crossed(s.features[learn], s.mean[learn], settings))
            habits[k] = Habit(density, fit_tail(strangeness))
    return habits


def _crossed(features: NDArray[np.float32], ratios: NDArray[np.float32], settings: Settings) -> NDArray[np.float64]:
    """(n,) how strange each half is by what is usual in the other, where held-out windows are few.

    The halves take turns, so that each has its mornings and evenings.
    """
    turn = np.arange(len(features)) * TURNS // len(features) % 2
    strangeness = np.empty(len(features))
    for mine in (0, 1):
        other = turn != mine
        density = fit_density(features[other], ratios[other], settings.components, settings.seed)
        strangeness[turn == mine] = density.strangeness(features[turn == mine])
    return strangeness


def _tails(
    kind: NDArray[np.integer],
    x: NDArray[np.floating],
    known: NDArray[np.bool_],
    fit: Callable[[NDArray[np.floating]], Tail] = fit_tail,
) -> dict[int, Tail]:
    """A tail for each kind of which there is enough."""
    found, count = np.unique(kind[known], return_counts=True)
    return {int(k): fit(x[known & (kind == k)]) for k, n in zip(found, count, strict=True) if n >= ENOUGH}
