"""Why these threads are strange: detector, moment, scores, threads -> the channel, the seconds, and what was expected.

A reason is numbers first; its sentence is made of those numbers and nothing else, so that it cannot contradict them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import label_of
from clustertwin.telemetry.detection.events.tracker import Event
from clustertwin.telemetry.detection.scores import NAMING, Scores
from clustertwin.telemetry.detection.views.region_distance import Near
from clustertwin.telemetry.moments.moment import Moment

WINDOW_S = 100


class Places(Protocol):
    """Known places in the embedding."""

    def nearest(self, embedding: NDArray[np.float32]) -> tuple[tuple[str, float], ...]:
        """(n, latent) -> the nearest kinds and the distance to each."""
        ...


class Expects(Protocol):
    """A detector that can say what it would have found normal."""

    def expected(self, moment: Moment, threads: NDArray[np.intp], view: str) -> NDArray[np.float32]:
        """(n, channel) mean ratios over the window, NaN where this view cannot say."""
        ...

    def near(self, moment: Moment, scores: Scores, threads: NDArray[np.intp]) -> Near | None:
        """The known-wrong region that these threads have come nearest to; None where none is known."""
        ...


@dataclass(frozen=True, slots=True)
class Ratio:
    """One channel over the window: what was seen, what was expected, what the neighbours had; None: not known."""

    channel: str
    seen: float
    expected: float | None
    neighbours: float | None


@dataclass(frozen=True, slots=True)
class NodeRatio:
    """One channel of the nodes of the threads: its mean over the window and over these nodes."""

    channel: str
    seen: float


@dataclass(frozen=True, slots=True)
class Why:
    """`ratios` has every channel, the telling one first."""

    view: str
    start_s: int
    end_s: int
    far_s: int  # seconds of these in which the telling channel was nearer to `seen` than to what it is compared with
    threads: int
    neighbours: int  # how many threads they are
    neighbours_of: str  # "job", "node" or "" where there are none
    ratios: tuple[Ratio, ...]
    nearest: tuple[tuple[str, float], ...] = ()  # known kinds of jobs in the embedding, and the distance to each
    region: str = ""  # what is wrong where they have come too near to, if that is why; else empty
    distance: float | None = None  # in the embedding, of the nearest of them to that region
    kept: float | None = None  # the distance that normal threads keep from it
    node_ratios: tuple[NodeRatio, ...] = ()  # context: memory and pressure of their nodes, as far as known

    @property
    def channel(self) -> str:
        return self.ratios[0].channel

    @property
    def sentence(self) -> str:
        told = self.ratios[0]
        length_s = self.end_s - self.start_s
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        text = f"{threads}: {label_of(told.channel)} was {_percent(told.seen)} over {length_s} s"
        if told.expected is not None:
            text += f", where {_percent(told.expected)} was expected"
        if told.neighbours is not None:
            others = f"other thread of the {self.neighbours_of}" if self.neighbours == 1 else ""
            others = others or f"{self.neighbours} other threads of the {self.neighbours_of}"
            text += f"; the {others} had {_percent(told.neighbours)}"
        if self.distance is not None and self.kept is not None:
            text += f"; in the embedding {_distance(self.distance)} from {self.region}"
            text += f", where normal threads keep {_distance(self.kept)}"
        return text + "."


def rows_of(moment: Moment, event: Event) -> NDArray[np.intp]:
    """Where an event's threads are in a moment; those that are gone are left out."""
    row = {(moment.nodes[n], int(c)): i for i, (n, c) in enumerate(zip(moment.node, moment.cpu, strict=True))}
    found = [row[node, cpu] for node, cpus in event.places for cpu in cpus if (node, cpu) in row]
    return np.array(found, np.intp)


def explain(
    detector: Expects, moment: Moment, scores: Scores, threads: NDArray[np.intp], places: Places | None = None
) -> Why | None:
    """The reason for these threads; None where not one of their seconds is known."""
    if not len(threads):
        return None
    view = scores.spoke(int(threads[np.argmax(np.nan_to_num(scores.score[threads], nan=-1.0))])) or scores.views[0]
    values, valid = _window(moment, moment.values.shape[1] if view.endswith("5min") else WINDOW_S)
    known = threads[valid[threads].any(1)]
    if not len(known):
        return None
    seen = _means(values, valid, known)  # (channel,)
    expected = _mean_known(detector.expected(moment, known, view), len(seen))
    others, others_of = _neighbours(moment, valid, threads)
    theirs = _means(values, valid, others) if len(others) else np.full(len(seen), np.nan)
    # What the view expected is the yardstick; a view that cannot say leaves the neighbours.
    yardstick = np.where(np.isnan(expected), theirs, expected)
    apart = seen - yardstick
    # Of a whole, what grew says more than what it took from: "iowait 70 %", not "user 20 %".
    apart[list(moment.schema.bounded)] = np.abs(apart[list(moment.schema.bounded)])
    order = np.argsort(-np.nan_to_num(apart, nan=-2.0), kind="stable")
    if np.isnan(apart).all():
        order = np.argsort(-seen, kind="stable")
    ratios = [Ratio(moment.schema.names[c], float(seen[c]), _or_none(expected[c]), _or_none(theirs[c])) for c in order]
    near = detector.near(moment, scores, known) if view == NAMING else None
    return Why(
        view=view,
        start_s=moment.end_s - values.shape[1],
        end_s=moment.end_s,
        far_s=_far_s(values[known, :, order[0]], valid[known], float(seen[order[0]]), float(yardstick[order[0]])),
        threads=len(known),
        neighbours=len(others),
        neighbours_of=others_of,
        ratios=tuple(ratios),
        nearest=places.nearest(scores.embedding[known]) if places else (),
        region=near.name if near else "",
        distance=near.distance if near else None,
        kept=near.kept if near else None,
        node_ratios=_node_ratios(moment, known, values.shape[1]),
    )


def _node_ratios(moment: Moment, threads: NDArray[np.intp], length_s: int) -> tuple[NodeRatio, ...]:
    """The channels of the nodes of these threads, over the last seconds."""
    if moment.node_channels is None:
        return ()
    values = moment.node_channels.values[np.unique(moment.node[threads]), -length_s:]  # (node, second, channel)
    means = _mean_known(values.reshape(-1, values.shape[2]), values.shape[2])
    names = moment.node_channels.schema.names
    return tuple(NodeRatio(name, float(mean)) for name, mean in zip(names, means, strict=True) if not np.isnan(mean))


def _window(moment: Moment, length_s: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The last seconds, without those in which a thread still had another job."""
    values, valid = moment.windows(length_s)
    return values, valid & (np.arange(length_s, 0, -1) <= moment.age_s[:, None])


def _means(values: NDArray[np.float32], valid: NDArray[np.bool_], rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """(channel,) over the valid seconds of these threads."""
    weights = valid[rows, :, None]
    return np.asarray((values[rows] * weights).sum((0, 1), dtype=np.float64) / max(int(weights.sum()), 1))


def _mean_known(rows: NDArray[np.float32], channels: int) -> NDArray[np.float64]:
    """(channel,) the mean over the threads that have one; NaN where none has."""
    known = ~np.isnan(rows)
    count = known.sum(0)
    total = np.where(known, rows, 0).sum(0, dtype=np.float64)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan) if len(rows) else np.full(channels, np.nan)


def _neighbours(moment: Moment, valid: NDArray[np.bool_], threads: NDArray[np.intp]) -> tuple[NDArray[np.intp], str]:
    """The other threads of the same jobs, or else of the same nodes, of which anything is known."""
    mine = np.zeros(len(moment), np.bool_)
    mine[threads] = True
    heard = valid.any(1) & ~mine
    jobs = np.setdiff1d(moment.job[threads], [-1])
    same_job = np.flatnonzero(heard & np.isin(moment.job, jobs))
    if len(same_job):
        return same_job, "job"
    same_node = np.flatnonzero(heard & np.isin(moment.node, moment.node[threads]))
    return same_node, "node" if len(same_node) else ""


def _far_s(values: NDArray[np.float32], valid: NDArray[np.bool_], seen: float, yardstick: float) -> int:
    """Seconds whose mean over the threads lies on `seen`'s side of the middle between both."""
    if np.isnan(yardstick) or seen == yardstick:
        return 0
    count = valid.sum(0)  # (second,)
    mean = (values * valid).sum(0) / np.maximum(count, 1)
    far = (mean - (seen + yardstick) / 2) * np.sign(seen - yardstick) > 0
    return int((far & (count > 0)).sum())


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _distance(value: float) -> str:
    return f"{value:.3g}"


def _percent(ratio: float) -> str:
    """Two numbers that differ by what matters must not read the same: small ones keep a decimal."""
    percent = 100 * ratio
    return f"{percent:.0f} %" if 10 <= percent <= 90 or percent in (0, 100) else f"{percent:.1f} %"
