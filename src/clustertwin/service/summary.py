"""A scored moment in brief: moment, scores, threshold -> a state for each node and for each job, strangest first."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.traces import JobSpan
from clustertwin.service.state import JobState, NodeState, Phase
from clustertwin.telemetry.detection.moment import Moment
from clustertwin.telemetry.detection.scores import Scores


def heard_s(moment: Moment) -> NDArray[np.int64]:
    """(node,) the second after the last that any thread of a node was seen; 0 where none was."""
    seconds = np.arange(moment.end_s - moment.valid.shape[1] + 1, moment.end_s + 1)
    last = np.where(moment.valid.any(1), seconds[::-1][moment.valid[:, ::-1].argmax(1)], 0)  # (thread,)
    out = np.zeros(len(moment.nodes), np.int64)
    np.maximum.at(out, moment.node, last)
    return out


def unknown(moment: Moment) -> Scores:
    """Before the first scoring nothing is known of anybody."""
    nan = np.full(len(moment), np.nan, np.float32)
    return Scores(nan, nan[:, None], ("",), nan, np.empty((len(moment), 0), np.float32))


def nodes(
    moment: Moment, scores: Scores, threshold: float, stale_before_s: float, in_maintenance: NDArray[np.bool_]
) -> tuple[NodeState, ...]:
    """One state a node."""
    heard = heard_s(moment)
    count, worst, error, alarming, silent = _by(moment.node, len(moment.nodes), scores, threshold)
    jobs: list[set[str]] = [set() for _ in moment.nodes]
    pairs = np.unique(np.stack([moment.node, moment.job], 1)[moment.job >= 0], axis=0)
    for node, job in pairs.tolist():
        jobs[node].add(moment.jobs[job])
    states = [
        NodeState(
            name,
            _phase(bool(in_maintenance[i]), heard[i] < stale_before_s, bool(silent[i] == count[i])),
            int(count[i]),
            int(heard[i]),
            float(worst[i]),
            float(error[i]),
            int(alarming[i]),
            int(silent[i]),
            tuple(sorted(jobs[i])),
        )
        for i, name in enumerate(moment.nodes)
    ]
    return tuple(sorted(states, key=lambda state: (-np.nan_to_num(state.score, nan=-1.0), state.node)))


def jobs(moment: Moment, scores: Scores, threshold: float, spans: Mapping[str, JobSpan]) -> tuple[JobState, ...]:
    """One state a running job; `spans` holds one span of each, for its owner and its type."""
    held = np.flatnonzero(moment.job >= 0)
    count, worst, error, alarming, _ = _by(moment.job[held], len(moment.jobs), _take(scores, held), threshold)
    oldest_s = np.zeros(len(moment.jobs), np.int64)
    np.maximum.at(oldest_s, moment.job[held], moment.age_s[held])
    where: list[set[str]] = [set() for _ in moment.jobs]
    for node, job in np.unique(np.stack([moment.node[held], moment.job[held]], 1), axis=0).tolist():
        where[job].add(moment.nodes[node])
    states = []
    for i, name in enumerate(moment.jobs):
        span = spans.get(name)
        states.append(
            JobState(
                job=name,
                owner=span.owner if span else "",
                job_type=span.job_type if span else "",
                nodes=tuple(sorted(where[i])),
                threads=int(count[i]),
                since_s=moment.end_s - int(oldest_s[i]),
                score=float(worst[i]),
                error=float(error[i]),
                alarming=int(alarming[i]),
            )
        )
    return tuple(sorted(states, key=lambda state: (-np.nan_to_num(state.score, nan=-1.0), state.job)))


def _phase(in_maintenance: bool, stale: bool, silent: bool) -> Phase:
    if in_maintenance:
        return "maintenance"
    return "stale" if stale else "warming-up" if silent else "watching"


def _by(
    group: NDArray[np.int32], groups: int, scores: Scores, threshold: float
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """For each group: threads, the highest score, the mean error, threads alarming, threads unknown."""
    known = ~np.isnan(scores.score)
    count = np.bincount(group, minlength=groups)
    worst = np.full(groups, -np.inf)
    np.maximum.at(worst, group[known], scores.score[known])
    heard = np.bincount(group[known], minlength=groups)
    error = np.bincount(group[known], weights=scores.error[known], minlength=groups) / np.maximum(heard, 1)
    alarming = np.bincount(group[known & (scores.score > threshold)], minlength=groups)
    blank = heard == 0
    return count, np.where(blank, np.nan, worst), np.where(blank, np.nan, error), alarming, count - heard


def _take(scores: Scores, rows: NDArray[np.intp]) -> Scores:
    return Scores(scores.score[rows], scores.surprise[rows], scores.views, scores.error[rows], scores.embedding[rows])
