"""A scored moment in brief: moment, scores, threshold -> a state for each node and for each job, strangest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.traces import JobSpan
from clustertwin.service.live.snapshot import JobState, NodeState, Phase
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import Moment


def heard_s(moment: Moment) -> NDArray[np.int64]:
    """(node,) the second after the last that any thread of a node was seen; 0 where none was."""
    out = np.zeros(len(moment.nodes), np.int64)
    missing = np.arange(len(moment))  # threads of nodes not yet found: after the newest second hardly any
    for back in range(moment.valid.shape[1]):
        seen = moment.node[missing[moment.valid[missing, -1 - back]]]
        out[seen] = moment.end_s - back
        missing = missing[out[moment.node[missing]] == 0]
        if not len(missing):
            break
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
    jobs: list[list[str]] = [[] for _ in moment.nodes]
    for node, job in _pairs(moment):
        jobs[node].append(moment.jobs[job])
    phases = map(_phase, in_maintenance.tolist(), (heard < stale_before_s).tolist(), (silent == count).tolist())
    columns = [count, heard, worst, error, alarming, silent]
    states = []
    for name, phase, row, own in zip(moment.nodes, phases, _rows(columns), jobs, strict=True):
        threads, heard_at_s, score, mistake, above, unknown_ = row
        names = tuple(sorted(own))
        states.append(NodeState(name, phase, threads, heard_at_s, score, mistake, above, unknown_, names))
    return tuple(states[i] for i in _strangest_first(worst, moment.nodes))


def jobs(moment: Moment, scores: Scores, threshold: float, spans: Mapping[str, JobSpan]) -> tuple[JobState, ...]:
    """One state a running job; `spans` holds one span of each, for its owner and its type."""
    held = np.flatnonzero(moment.job >= 0)
    count, worst, error, alarming, _ = _by(moment.job[held], len(moment.jobs), scores.take(held), threshold)
    oldest_s = np.zeros(len(moment.jobs), np.int64)
    np.maximum.at(oldest_s, moment.job[held], moment.age_s[held])
    where: list[list[str]] = [[] for _ in moment.jobs]
    for node, job in _pairs(moment):
        where[job].append(moment.nodes[node])
    columns = [count, moment.end_s - oldest_s, worst, error, alarming]
    states = []
    for name, own, (threads, *rest) in zip(moment.jobs, where, _rows(columns), strict=True):
        span = spans.get(name)
        owner, job_type = (span.owner, span.job_type) if span else ("", "")
        states.append(JobState(name, owner, job_type, tuple(sorted(own)), threads, *rest))
    return tuple(states[i] for i in _strangest_first(worst, moment.jobs))


def _pairs(moment: Moment) -> list[tuple[int, int]]:
    """(node, job) wherever a job holds threads of a node."""
    held = moment.job >= 0
    pairs = np.unique(moment.node[held].astype(np.int64) * len(moment.jobs) + moment.job[held])
    return [divmod(pair, len(moment.jobs)) for pair in pairs.tolist()]


def _rows(columns: Sequence[NDArray[Any]]) -> Iterator[tuple[Any, ...]]:
    """Plain numbers, row by row."""
    return zip(*(column.tolist() for column in columns), strict=True)


def _strangest_first(worst: NDArray[np.float64], names: tuple[str, ...]) -> list[int]:
    """What is unknown comes last; what is equally strange by name."""
    by_name = np.argsort(np.array(names)) if len(names) else np.zeros(0, np.intp)
    order: list[int] = by_name[np.argsort(-np.nan_to_num(worst[by_name], nan=-1.0), kind="stable")].tolist()
    return order


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
