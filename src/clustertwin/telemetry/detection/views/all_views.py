"""The views of a detector and the one score made of them: tables learnt from normal data, moment -> `Scores`.

Six views speak of each thread, each as a p-value of its own: the model's error; how usual the thread's statistics
are, given that a job holds it or none does, over the window and over five minutes; how far it stands from the job's
other threads, likewise; how near it has come to where jobs that went wrong lie. The strangest counts, and is calibrated
once more, so that one threshold has one stated rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.detection.features.inference import reconstruct
from clustertwin.telemetry.detection.features.observation import HELD, LENGTHS_S, Look, kind_of, look
from clustertwin.telemetry.detection.scores import NAMING, Scores
from clustertwin.telemetry.detection.views.gaussian_mixture import Density
from clustertwin.telemetry.detection.views.p_value import Tail
from clustertwin.telemetry.detection.views.region_distance import Clearance, Near, Regions, nearest
from clustertwin.telemetry.models.model_store import Stored
from clustertwin.telemetry.moments.moment import WINDOW_S, Moment

VIEWS = ("reconstruction", "density", "density-5min", "peers", "peers-5min", NAMING)
HIGHEST = 30.0  # no sample tells one in 10^30 from less
_EXCUSED = 4.0  # in a pair, one this strange by itself explains the other's distance from it
_HELD_ALONE, _IN_COMPANY = 3, 4  # threads of which four views speak, or all six

NOWHERE = Regions((), np.zeros((0, 0), np.float32))  # for a model whose embedding has no known places

Surprise = NDArray[np.float64]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Settings:
    false_alarm_rate: float = 1e-3  # of normal windows, stated and checked on data not calibrated on
    enough: float = 0.8  # of a window's seconds must be valid, else its score is unknown
    components: int = 16  # usual ways to spend the time
    learn: float = 0.6  # of the moments, the first, say what is usual; the rest how strange the usual looks
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Habit:
    """What threads of one kind usually do, and how unusual normal ones are."""

    density: Density
    tail: Tail

    def surprise(self, features: NDArray[np.float32]) -> Surprise:
        return self.tail.surprise(self.density.strangeness(features))


@dataclass(frozen=True, slots=True)
class Detector:
    """Score a moment; `threshold` is where normal threads exceed it at the stated rate.

    Tables are by kind of thread. A kind that was never seen is judged as kindly as any that was.
    """

    stored: Stored
    settings: Settings
    errors: Mapping[int, Tail]  # by FREE, HELD, UNKNOWN
    habits: tuple[Mapping[int, Habit], ...]  # for each length, by the same
    apart: tuple[Mapping[int, Tail], ...]  # for each length, by threads of the job: 2, or 3 for more
    whole: Mapping[int, Tail]
    regions: Regions = NOWHERE
    clearance: Mapping[int, Clearance] = field(default_factory=dict)  # by FREE, HELD, UNKNOWN
    sha256: str = ""  # of the model and of all that was calibrated

    @property
    def version(self) -> str:
        return f"{self.stored.name}-{self.sha256[:12]}"

    @property
    def views(self) -> tuple[str, ...]:
        return VIEWS

    @property
    def threshold(self) -> float:
        return -float(np.log10(self.settings.false_alarm_rate))

    def score(self, moment: Moment) -> Scores:
        seen = look(self.stored, moment, self.settings.enough)
        surprise = self.surprise(seen)
        with np.errstate(invalid="ignore"):
            whole = _by_kind(self.whole, standing(seen), strangest(surprise), seen.known[0])
        score = np.minimum(whole, HIGHEST).astype(np.float32)
        return Scores(score, surprise.astype(np.float32), VIEWS, seen.error, seen.embedding)

    def surprise(self, seen: Look) -> Surprise:
        """(thread, view) each view's own -log10 p; NaN where it has nothing to say."""
        columns = [_by_kind(self.errors, seen.kind, size(seen.error), seen.known[0])]
        columns += [self._unusual(seen, i) for i in range(len(LENGTHS_S))]
        own = np.nan_to_num(np.fmax(columns[1], columns[2]))
        columns += [self._apart(seen, i, own) for i in range(len(LENGTHS_S))]
        columns.append(self._nearing(seen))
        return np.stack(columns, axis=1)

    def expected(self, moment: Moment, threads: NDArray[np.intp], view: str) -> NDArray[np.float32]:
        """(n, channel) the mean ratios this view expected of these threads; NaN where it cannot say."""
        if view not in VIEWS:
            raise SettingsError(f"no view {view!r}; there are {', '.join(VIEWS)}")
        few, rows = moment.among(threads)
        if view == "reconstruction":
            valid = few.windows(WINDOW_S)[1][rows, :, None]
            made = reconstruct(self.stored, few)[rows] * valid
            total = valid.sum(1)
            return np.where(total > 0, made.sum(1) / np.maximum(total, 1), np.nan).astype(np.float32)
        # What is near to a wrong place is told from what is usual, as what is unusual is.
        seen, i = look(self.stored, few, self.settings.enough), int(view.endswith("5min"))
        if view.startswith("peers"):
            return seen.deviation[i].median[rows]
        features, kind = seen.statistics[i].features, seen.kind
        out = np.full((len(few), len(moment.schema)), np.nan, np.float32)
        for k in np.unique(kind[seen.known[i]]).tolist():
            mine = np.flatnonzero(seen.known[i] & (kind == k))
            judges = _judges(self.habits[i], k)
            if judges:
                kindest = np.argmin([judge.surprise(features[mine]) for judge in judges], axis=0)
                out[mine] = np.stack([j.density.expected(features[mine]) for j in judges])[
                    kindest, np.arange(len(mine))
                ]
        return out[rows]

    def near(self, moment: Moment, scores: Scores, threads: NDArray[np.intp]) -> Near | None:
        """The known-wrong region that these threads have come nearest to; None where none is known."""
        kind = kind_of(moment)[threads]
        found: list[Near] = []
        for k in np.unique(kind).tolist() if self.regions.names else ():
            apart = self.regions.apart(scores.embedding[threads[kind == k]])
            found += [near] if (near := nearest(self.regions, apart, _judges(self.clearance, k))) else []
        return max(found, key=lambda near: near.kept / near.distance, default=None)

    def _nearing(self, seen: Look) -> Surprise:
        out = np.full(len(seen), np.nan)
        if not self.clearance:
            return out
        for k in np.unique(seen.kind[seen.known[0]]).tolist():
            rows = np.flatnonzero(seen.known[0] & (seen.kind == k))
            apart = self.regions.apart(seen.embedding[rows])
            out[rows] = np.min([judge.surprise(apart) for judge in _judges(self.clearance, k)], axis=0)
        return out

    def _unusual(self, seen: Look, i: int) -> Surprise:
        features, out = seen.statistics[i].features, np.full(len(seen), np.nan)
        for k in np.unique(seen.kind[seen.known[i]]).tolist():
            rows = np.flatnonzero(seen.known[i] & (seen.kind == k))
            judges = _judges(self.habits[i], k)
            if judges:
                out[rows] = np.min([judge.surprise(features[rows]) for judge in judges], axis=0)
        return out

    def _apart(self, seen: Look, i: int, own: Surprise) -> Surprise:
        deviation = seen.deviation[i]
        theirs = own[deviation.partner]
        # Nobody in a pair stands apart by himself: where the other is strange anyway, this one is not.
        excused = (deviation.partner >= 0) & (theirs > _EXCUSED) & (theirs > own)
        compared = (deviation.size >= 2) & ~excused
        return _by_kind(self.apart[i], np.minimum(deviation.size, 3), deviation.distance, compared)


def _by_kind(
    tails: Mapping[int, Tail], kind: NDArray[np.integer], x: NDArray[np.floating], known: NDArray[np.bool_]
) -> Surprise:
    """Each thread by the tail of its kind; NaN where it is not known or no tail was learnt."""
    out = np.full(len(x), np.nan)
    for k in np.unique(kind[known]).tolist():
        rows = np.flatnonzero(known & (kind == k))
        judges = _judges(tails, k)
        if judges:
            out[rows] = np.min([tail.surprise(x[rows]) for tail in judges], axis=0)
    return out


def _judges(table: Mapping[int, _T], kind: int) -> list[_T]:
    return [table[kind]] if kind in table else list(table.values())


def standing(seen: Look) -> NDArray[np.int8]:
    """(thread,) FREE, UNKNOWN, held alone or held in company: how many views speak, which the strangest depends on."""
    held = np.where(seen.deviation[0].size >= 2, _IN_COMPANY, _HELD_ALONE)
    return np.where(seen.kind == HELD, held, seen.kind).astype(np.int8)


def strangest(surprise: Surprise) -> Surprise:
    """(thread,) what the view that found it strangest says; NaN where none knows."""
    return np.asarray(np.fmax.reduce(surprise, axis=1))


def size(error: NDArray[np.float32]) -> Surprise:
    """Errors by their order of magnitude, where their tail is a tail and not a cliff."""
    return np.log(np.asarray(error, np.float64) + 1e-9)
