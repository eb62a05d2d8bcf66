"""All that the views of a detector need of a moment: model, moment -> one `Look`, computed once.

Looks of many moments join into one, which is how a detector is calibrated: on what it will see, seen the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.detection.features.inference import evaluate
from clustertwin.telemetry.detection.features.peer_deviation import Deviation, deviate
from clustertwin.telemetry.detection.features.statistics import Statistics, measure_each
from clustertwin.telemetry.models.model_store import Stored
from clustertwin.telemetry.moments.moment import WINDOW_S, Moment

LASTING_S = 300
LENGTHS_S = (WINDOW_S, LASTING_S)
LONG_ENOUGH_S = 200  # a thread that has done this for less has no view of its last five minutes

#: Who holds a thread. Where no job is known anywhere, nobody can say.
FREE, HELD, UNKNOWN = 0, 1, 2

_Rows = TypeVar("_Rows", Statistics, Deviation)


@dataclass(frozen=True, slots=True)
class Look:
    """One row a thread."""

    kind: NDArray[np.int8]  # (thread,) FREE, HELD or UNKNOWN
    error: NDArray[np.float32]  # (thread,)
    embedding: NDArray[np.float32]  # (thread, latent)
    known: tuple[NDArray[np.bool_], ...]  # (thread,) for each length
    statistics: tuple[Statistics, ...]
    deviation: tuple[Deviation, ...]

    def __len__(self) -> int:
        return len(self.kind)


def look(stored: Stored, moment: Moment, enough: float) -> Look:
    """Look at a moment; `enough` is the part of a window's seconds that must be valid."""
    schema = stored.model.config.shape.schema
    if moment.schema != schema:
        raise SettingsError(
            f"the model takes {', '.join(schema.names)}; this moment has {', '.join(moment.schema.names)}"
        )
    seen = _look(stored, moment, enough)
    # What is no number shows in the outcome: to look through five minutes of every thread for it costs a tenth more.
    fine = np.isfinite(seen.error).all() and all(np.isfinite(one.features).all() for one in seen.statistics)
    return seen if fine else _look(stored, _finite(moment), enough)


def _look(stored: Stored, moment: Moment, enough: float) -> Look:
    embedding, error = evaluate(stored, moment)
    statistics = measure_each(moment, LENGTHS_S)
    settled = moment.settled & (moment.windows(WINDOW_S)[1].mean(1) >= enough) & (statistics[0].seconds > 0)
    known = (settled, settled & (statistics[1].seconds >= LONG_ENOUGH_S))
    deviation = tuple(deviate(s.mean, s.noise, moment.job, k) for s, k in zip(statistics, known, strict=True))
    return Look(kind_of(moment), error, embedding, known, statistics, deviation)


def kind_of(moment: Moment) -> NDArray[np.int8]:
    """(thread,) FREE, HELD or UNKNOWN."""
    return np.where(moment.job >= 0, HELD, FREE if moment.jobs else UNKNOWN).astype(np.int8)


def join(looks: Sequence[Look]) -> Look:
    """The rows of all, one after another."""
    firsts = np.cumsum([0, *(len(one) for one in looks)])
    moved = [_moved(one, int(first)) for one, first in zip(looks, firsts, strict=False)]

    lengths = range(len(LENGTHS_S))
    return Look(
        np.concatenate([one.kind for one in moved]),
        np.concatenate([one.error for one in moved]),
        np.concatenate([one.embedding for one in moved]),
        tuple(np.concatenate([one.known[i] for one in moved]) for i in lengths),
        tuple(_joined(Statistics, [one.statistics[i] for one in moved]) for i in lengths),
        tuple(_joined(Deviation, [one.deviation[i] for one in moved]) for i in lengths),
    )


def _joined(kind: type[_Rows], parts: Sequence[_Rows]) -> _Rows:
    names = [field.name for field in fields(kind)]
    return kind(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _moved(one: Look, first: int) -> Look:
    """Partners are rows, so they move with them."""
    deviation = tuple(replace(d, partner=np.where(d.partner >= 0, d.partner + first, -1)) for d in one.deviation)
    return replace(one, deviation=deviation)


def _finite(moment: Moment) -> Moment:
    """A value that is no number makes its second invalid, whatever its mask says."""
    odd = np.flatnonzero(~np.isfinite(moment.values.sum((1, 2))))
    if not len(odd):
        return moment
    values, valid = moment.values.copy(), moment.valid.copy()
    valid[odd] &= np.isfinite(values[odd]).all(-1)
    values[~valid] = 0
    return replace(moment, values=values, valid=valid)
