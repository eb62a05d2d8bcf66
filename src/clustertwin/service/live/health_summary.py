"""Summarise a scored moment: moment, scores, threshold -> the state of each node and job, highest score first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.formatting import natural
from clustertwin.core.traces import JobSpan
from clustertwin.service.live.snapshot import JobState, NodeState, Phase
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import Moment


def heard_s(moment: Moment) -> NDArray[np.int64]:
    """(node,) the end of the last second with data of any thread of the node; 0 if there is none."""
    end_s = np.zeros(len(moment.nodes), np.int64)
    missing = np.arange(len(moment))  # threads of nodes without a result; after the newest second few are left
    for back in range(moment.valid.shape[1]):
        with_data = moment.node[missing[moment.valid[missing, -1 - back]]]
        end_s[with_data] = moment.end_s - back
        missing = missing[end_s[moment.node[missing]] == 0]
        if not len(missing):
            break
    return end_s


def unknown(moment: Moment) -> Scores:
    """The scores before the first scoring: all unknown."""
    nan = np.full(len(moment), np.nan, np.float32)
    return Scores(nan, nan[:, None], ("",), nan, np.empty((len(moment), 0), np.float32))


def nodes(
    moment: Moment, scores: Scores, threshold: float, stale_before_s: float, in_maintenance: NDArray[np.bool_]
) -> tuple[NodeState, ...]:
    """The state of each node."""
    newest_s = heard_s(moment)
    count, highest, error, alarming, unscored = _by(moment.node, len(moment.nodes), scores, threshold)
    jobs: list[list[str]] = [[] for _ in moment.nodes]
    for node, job in _pairs(moment):
        jobs[node].append(moment.jobs[job])
    phases = map(_phase, in_maintenance.tolist(), (newest_s < stale_before_s).tolist(), (unscored == count).tolist())
    columns = [count, newest_s, highest, error, alarming, unscored]
    states = []
    for name, phase, row, jobs_of_node in zip(moment.nodes, phases, _rows(columns), jobs, strict=True):
        threads, heard_at_s, score, mean_error, above, without_score = row
        own_jobs = tuple(sorted(jobs_of_node, key=natural))
        states.append(NodeState(name, phase, threads, heard_at_s, score, mean_error, above, without_score, own_jobs))
    return tuple(states[i] for i in _highest_first(highest, moment.nodes))


def heard(states: tuple[NodeState, ...], heard_s: Mapping[str, int], stale_before_s: float) -> tuple[NodeState, ...]:
    """The states of the last scoring, with what was heard since. A scoring may be many seconds ago."""
    newest_s = [heard_s.get(state.node, state.heard_s) for state in states]
    return tuple(
        replace(
            state,
            heard_s=end_s,
            phase=_phase(state.phase == "maintenance", end_s < stale_before_s, state.unknown == state.threads),
        )
        for state, end_s in zip(states, newest_s, strict=True)
    )


def jobs(moment: Moment, scores: Scores, threshold: float, spans: Mapping[str, JobSpan]) -> tuple[JobState, ...]:
    """The state of each running job. `spans` has one span of each job, for its owner and its type."""
    held = np.flatnonzero(moment.job >= 0)
    count, highest, error, alarming, _ = _by(moment.job[held], len(moment.jobs), scores.take(held), threshold)
    oldest_s = np.zeros(len(moment.jobs), np.int64)
    np.maximum.at(oldest_s, moment.job[held], moment.age_s[held])
    nodes_of_job: list[list[str]] = [[] for _ in moment.jobs]
    for node, job in _pairs(moment):
        nodes_of_job[job].append(moment.nodes[node])
    columns = [count, moment.end_s - oldest_s, highest, error, alarming]
    states = []
    for name, own_nodes, row in zip(moment.jobs, nodes_of_job, _rows(columns), strict=True):
        span = spans.get(name)
        owner, job_type = (span.user or span.owner, span.job_type) if span else ("", "")
        threads, since_s, score, mean_error, above = row
        states.append(
            JobState(
                name,
                owner,
                job_type,
                tuple(sorted(own_nodes, key=natural)),
                threads,
                since_s,
                score,
                mean_error,
                above,
                span.name if span else "",
                span.account if span else "",
            )
        )
    return tuple(states[i] for i in _highest_first(highest, moment.jobs))


def _pairs(moment: Moment) -> list[tuple[int, int]]:
    """(node, job) for each job on each node."""
    held = moment.job >= 0
    pairs = np.unique(moment.node[held].astype(np.int64) * len(moment.jobs) + moment.job[held])
    return [divmod(pair, len(moment.jobs)) for pair in pairs.tolist()]


def _rows(columns: Sequence[NDArray[Any]]) -> Iterator[tuple[Any, ...]]:
    """Python numbers, row by row."""
    return zip(*(column.tolist() for column in columns), strict=True)


def _highest_first(scores: NDArray[np.float64], names: tuple[str, ...]) -> list[int]:
    """The order by score, then by name. Unknown scores come last."""
    by_name = np.array(sorted(range(len(names)), key=lambda i: natural(names[i])), np.intp)
    order: list[int] = by_name[np.argsort(-np.nan_to_num(scores[by_name], nan=-1.0), kind="stable")].tolist()
    return order


def _phase(in_maintenance: bool, stale: bool, unscored: bool) -> Phase:
    if in_maintenance:
        return "maintenance"
    return "stale" if stale else "warming-up" if unscored else "watching"


def _by(
    group: NDArray[np.int32], groups: int, scores: Scores, threshold: float
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """For each group: threads, highest score, mean error, threads above the threshold, threads without a score."""
    known = ~np.isnan(scores.score)
    count = np.bincount(group, minlength=groups)
    highest = np.full(groups, -np.inf)
    np.maximum.at(highest, group[known], scores.score[known])
    scored = np.bincount(group[known], minlength=groups)
    error = np.bincount(group[known], weights=scores.error[known], minlength=groups) / np.maximum(scored, 1)
    alarming = np.bincount(group[known & (scores.score > threshold)], minlength=groups)
    none = scored == 0
    return count, np.where(none, np.nan, highest), np.where(none, np.nan, error), alarming, count - scored
