"""Series of jobs and channels -> the jobs of a node and the operands of its channels, at the times of its counters.

Which series belongs to which node, job and operand is planned once, as in `series_table`. A range that was queried in
pieces has an answer for each piece, and each time belongs to one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import JOB, NODE
from clustertwin.core.traces import JobSpan
from clustertwin.telemetry.ingest.counters import JobCpus, job_spans, short_name
from clustertwin.telemetry.ingest.dialects import jobs_of, thread_number
from clustertwin.telemetry.ingest.metrics_page import MOST_JOBS
from clustertwin.telemetry.ingest.node_channels import OperandSlots
from clustertwin.telemetry.ingest.sources.query_answer import Labels, MatrixAnswer
from clustertwin.telemetry.ingest.sources.series_table import values_at


@dataclass(frozen=True, slots=True)
class ChannelPlan:
    """The series of one node in an answer."""

    dialect: str
    rows: NDArray[np.intp]  # (series,) their numbers in the answer
    labels: tuple[Labels, ...]
    node: OperandSlots
    jobs: dict[str, OperandSlots]  # by jobid


ChannelAnswer = MatrixAnswer[dict[str, ChannelPlan]]


@dataclass(frozen=True, slots=True)
class PlacedSeries:
    """The series of one node at those times of its counters that an answer reaches."""

    plan: ChannelPlan
    times: slice
    values: NDArray[np.float64]  # (time, series + 1), NaN where a series has no sample; the last one has none


def plan_channels(labels: Sequence[Labels | None], dialect: str) -> dict[str, ChannelPlan]:
    """The plan of each instance. A series without labels was refused."""
    rows: dict[str, list[int]] = {}
    for row, of_series in enumerate(labels):
        if of_series is not None:
            rows.setdefault(of_series.get("instance", ""), []).append(row)
    return {
        instance: _plan(dialect, np.array(of_node, np.intp), [labels[row] or {} for row in of_node])
        for instance, of_node in rows.items()
    }


def _plan(dialect: str, rows: NDArray[np.intp], labels: Sequence[Labels]) -> ChannelPlan:
    of_job: dict[str, list[int]] = {}
    for place, of_series in enumerate(labels):
        if "jobid" in of_series:
            of_job.setdefault(of_series["jobid"], []).append(place)
    named = [(of_series.get("__name__", ""), of_series) for of_series in labels]
    jobs = {
        job: OperandSlots([named[place] for place in places], dialect, JOB, places) for job, places in of_job.items()
    }
    return ChannelPlan(dialect, rows, tuple(labels), OperandSlots(named, dialect, NODE), jobs)


def place_series(instance: str, times_s: NDArray[np.float64], answers: Iterable[ChannelAnswer]) -> list[PlacedSeries]:
    """The series of one node at increasing times; ValueError if they have too many of their own."""
    placed = []
    for answer in answers:
        plan = answer.labels.get(instance)
        if plan is None:
            continue
        counts = answer.first[plan.rows + 1] - answer.first[plan.rows]
        if not counts.all():  # a series that ended just before this range is not a part of any sum
            left = np.flatnonzero(counts)
            plan = _plan(plan.dialect, plan.rows[left], [plan.labels[i] for i in left.tolist()])
        if len(plan.rows):
            times, values = values_at(times_s, plan.rows, answer)
            if len(values):
                placed.append(PlacedSeries(plan, times, values))
    return placed


def node_operands(placed: Sequence[PlacedSeries], times: int) -> NDArray[np.float64]:
    """The operands (time, channel, 2) of a node: sums of the series that are selected; NaN where there are none."""
    operands = np.full((times, len(NODE), 2), np.nan)
    for part in placed:
        _fill(operands[part.times], part.plan.node.read(part.values))
    return operands


def job_operands(jobs: Sequence[str], placed: Sequence[PlacedSeries], times: int) -> NDArray[np.float64]:
    """The operands (job, time, channel of JOB, 2), as `node_operands`."""
    operands = np.full((len(jobs), times, len(JOB), 2), np.nan)
    for part in placed:
        for number, job in enumerate(jobs):
            if job in part.plan.jobs:
                _fill(operands[number, part.times], part.plan.jobs[job].read(part.values))
    return operands


def _fill(operands: NDArray[np.float64], more: NDArray[np.float64]) -> None:
    np.copyto(operands, more, where=np.isnan(operands))


def spans_of(node: str, times_s: NDArray[np.float64], allocations: Sequence[PlacedSeries]) -> tuple[JobSpan, ...]:
    """The job of each thread at each scrape -> spans; ValueError if the labels are not those of a job's thread."""
    held = [
        [(short_name(of.get("jobid", ""), "job"), thread_number(of)) for of in part.plan.labels] for part in allocations
    ]
    running = [part.values[:, :-1] > 0 for part in allocations]
    if len(running) == 1 and len(running[0]) == len(times_s) and running[0].all():
        jobs = _jobs_at_once(held[0])  # the usual case: no job begins or ends
        return job_spans(node, [(time_s, jobs) for time_s in times_s.tolist()])
    at: list[list[tuple[str, int]]] = [[] for _ in range(len(times_s))]
    for part, is_running, pairs in zip(allocations, running, held, strict=True):
        for time, series in np.argwhere(is_running).tolist():
            at[part.times.start + time].append(pairs[series])
    return job_spans(node, [(time_s, _jobs_at_once(pairs)) for time_s, pairs in zip(times_s.tolist(), at, strict=True)])


def _jobs_at_once(allocations: list[tuple[str, int]]) -> tuple[JobCpus, ...]:
    """The jobs of a node at one instant; ValueError if there are more than the loop can use, as of a page."""
    jobs = jobs_of(allocations)
    if len(jobs) > MOST_JOBS:
        raise ValueError(f"{len(jobs)} jobs; the limit is {MOST_JOBS}")
    return jobs
