"""Series of CPU seconds -> the table of each node, for a hundred thousand threads in a second.

Which series belongs to which node, thread and mode is planned once: as long as Prometheus returns the same series, an
answer is put into its tables by index. A node whose series do not share their times is put together series by series.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import SourceError
from clustertwin.telemetry.ingest.counters import MODES, NODE_THREADS
from clustertwin.telemetry.ingest.dialects import thread_number
from clustertwin.telemetry.ingest.sources.query_answer import Labels, MatrixAnswer, Series, T

#: Cells of a node's table for each of its samples. A scrape has one time for all series, so the true number is one.
_CELLS_PER_SAMPLE = 8
#: The series of many short jobs have few samples each. A node may have this many cells without one.
_EMPTY_CELLS = 16_000_000


@dataclass(frozen=True, slots=True)
class NodePlan:
    """The series of one node in an answer."""

    rows: NDArray[np.intp]  # (series,) their numbers in the answer
    cpu: NDArray[np.intp]  # (series,) index into `cpus`
    mode: NDArray[np.intp]  # (series,) index into `modes`; -1: another mode
    cpus: tuple[int, ...]
    modes: tuple[str, ...]
    problem: str = ""  # why the node cannot be read


@dataclass(frozen=True, slots=True)
class SecondsTable:
    """The CPU seconds of one node."""

    cpus: tuple[int, ...]
    modes: tuple[str, ...]
    times_s: NDArray[np.float64]
    seconds: NDArray[np.float64]  # (cpu, time, mode)


def plan_nodes(labels: Sequence[Labels | None]) -> dict[str, NodePlan]:
    """The plan of each instance. A series without labels was refused."""
    rows: dict[str, list[int]] = {}
    for row, of_series in enumerate(labels):
        if of_series is not None:
            rows.setdefault(of_series.get("instance", ""), []).append(row)
    return {instance: _plan(labels, of_node) for instance, of_node in rows.items()}


def _plan(labels: Sequence[Labels | None], rows: list[int]) -> NodePlan:
    nothing = np.zeros(0, np.intp)
    try:
        threads = [thread_number(labels[row] or {}) for row in rows]
    except ValueError as reason:
        return NodePlan(nothing, nothing, nothing, (), (), str(reason))
    names = [(labels[row] or {}).get("mode", "") for row in rows]
    cpus, modes = tuple(sorted(set(threads))), tuple(mode for mode in MODES if mode in set(names))
    if len(cpus) > NODE_THREADS:
        return NodePlan(nothing, nothing, nothing, (), (), f"{len(cpus)} hardware threads; the limit is {NODE_THREADS}")
    place, column = {cpu: i for i, cpu in enumerate(cpus)}, {mode: i for i, mode in enumerate(modes)}
    return NodePlan(
        np.array(rows, np.intp),
        np.array([place[cpu] for cpu in threads], np.intp),
        np.array([column.get(mode, -1) for mode in names], np.intp),
        cpus,
        modes,
    )


def node_table(plan: NodePlan, answer: MatrixAnswer[dict[str, NodePlan]]) -> SecondsTable | None:
    """The table of one node; None if it has no sample. SourceError if it cannot be read."""
    if plan.problem:
        raise SourceError(plan.problem)
    first, counts = answer.first[plan.rows], answer.first[plan.rows + 1] - answer.first[plan.rows]
    if not counts.any():
        return None
    if (counts == counts[0]).all():
        at = first[:, None] + np.arange(counts[0])
        times_s = answer.times_s[at]  # (series, time)
        if (times_s == times_s[0]).all():
            known = plan.mode >= 0
            seconds = np.full((len(plan.cpus), len(times_s[0]), len(plan.modes)), np.nan)
            seconds[plan.cpu[known], :, plan.mode[known]] = answer.values[at[known]]
            return SecondsTable(plan.cpus, plan.modes, times_s[0], seconds)
    return _by_series(plan, [Series({}, answer.times_s[a : a + n], answer.values[a : a + n])
                             for a, n in zip(first.tolist(), counts.tolist(), strict=True)])  # fmt: skip


def _by_series(plan: NodePlan, group: list[Series]) -> SecondsTable:
    times_s = times_of(group)
    cells = len(plan.cpus) * len(times_s) * len(plan.modes)
    if cells > _CELLS_PER_SAMPLE * sum(len(series.times_s) for series in group) + 1_000_000:
        raise SourceError(f"its {len(group)} series have {len(times_s)} different times")
    seconds = np.full((len(plan.cpus), len(times_s), len(plan.modes)), np.nan)
    for cpu, mode, series in zip(plan.cpu.tolist(), plan.mode.tolist(), group, strict=True):
        if mode >= 0:
            seconds[cpu, :, mode] = at_times(times_s, series)
    return SecondsTable(plan.cpus, plan.modes, times_s, seconds)


def join_tables(tables: Sequence[SecondsTable]) -> SecondsTable:
    """The tables of a node from ranges that follow each other."""
    if len(tables) == 1:
        return tables[0]
    cpus = tuple(sorted({cpu for table in tables for cpu in table.cpus}))
    modes = tuple(mode for mode in MODES if any(mode in table.modes for table in tables))
    times_s = np.concatenate([table.times_s for table in tables])
    seconds = np.full((len(cpus), len(times_s), len(modes)), np.nan)
    begin = 0
    for table in tables:
        rows = np.searchsorted(cpus, table.cpus)
        end = begin + len(table.times_s)
        for mode, name in enumerate(table.modes):
            seconds[rows, begin:end, modes.index(name)] = table.seconds[:, :, mode]
        begin = end
    return SecondsTable(cpus, modes, times_s, seconds)


def values_at(
    times_s: NDArray[np.float64], rows: NDArray[np.intp], answer: MatrixAnswer[T]
) -> tuple[slice, NDArray[np.float64]]:
    """Series of an answer that all have samples -> the times that they reach, and their values there; ValueError if
    these are far more cells than samples.

    The values are (time, series + 1), NaN where a series has no sample, and in the last column.
    """
    first, counts = answer.first[rows], answer.first[rows + 1] - answer.first[rows]
    if (counts == len(times_s)).all():
        at = first[:, None] + np.arange(len(times_s))
        if (answer.times_s[at] == times_s).all():
            values = np.full((len(times_s), len(rows) + 1), np.nan)
            values[:, :-1] = answer.values[at].T
            return slice(0, len(times_s)), values
    group = [Series({}, answer.times_s[a : a + n], answer.values[a : a + n])
             for a, n in zip(first.tolist(), counts.tolist(), strict=True)]  # fmt: skip
    begin = int(np.searchsorted(times_s, min(series.times_s[0] for series in group)))
    end = int(np.searchsorted(times_s, max(series.times_s[-1] for series in group), "right"))
    reached_s = times_s[begin : max(begin, end)]
    if len(reached_s) * len(rows) > _CELLS_PER_SAMPLE * int(counts.sum()) + _EMPTY_CELLS:
        raise ValueError(f"{len(rows)} series of its jobs and channels have {len(reached_s)} different times")
    values = np.full((len(reached_s), len(rows) + 1), np.nan)
    if len(reached_s):
        for column, series in enumerate(group):
            values[:, column] = at_times(reached_s, series)
    return slice(begin, begin + len(reached_s)), values


def times_of(group: Sequence[Series]) -> NDArray[np.float64]:
    """All sample times of a node. Usually its series share them, because they come from the same scrapes."""
    first = group[0].times_s
    if all(np.array_equal(series.times_s, first) for series in group):
        return first
    return np.unique(np.concatenate([series.times_s for series in group]))


def at_times(times_s: NDArray[np.float64], series: Series) -> NDArray[np.float64]:
    """A series at a node's times; NaN where it has no sample."""
    if np.array_equal(series.times_s, times_s):
        return series.values
    values = np.full(len(times_s), np.nan)
    at = np.searchsorted(times_s, series.times_s).clip(max=len(times_s) - 1)
    same = times_s[at] == series.times_s
    values[at[same]] = series.values[same]
    return values
