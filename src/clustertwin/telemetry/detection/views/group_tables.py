"""Tables by group of threads: the p-value of a thread comes from the table of its group.

A group is an integer, for example the allocation of a thread. A group with fewer than `MIN_SAMPLE` normal windows has
no table. A thread of such a group gets the lowest surprise that any table gives it: the most lenient table decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.views.contract import Arrays, Surprise
from clustertwin.telemetry.detection.views.p_value import MIN_SAMPLE, SurvivalFunction, fit_pareto_tail

Groups = NDArray[np.integer]
_Table = TypeVar("_Table")


def tables_for(tables: Mapping[int, _Table], group: int) -> list[_Table]:
    """The table of a group, or all tables if it has none."""
    return [tables[group]] if group in tables else list(tables.values())


def lowest_surprise(
    tables: Mapping[int, _Table],
    group: Groups,
    known: NDArray[np.bool_],
    surprise: Callable[[_Table, NDArray[np.intp]], Surprise],
) -> Surprise:
    """(thread,) the surprise by each thread's table; NaN where the thread is not known or there is no table at all.

    `surprise` takes a table and the rows to apply it to.
    """
    out = np.full(len(known), np.nan)
    for number in np.unique(group[known]).tolist():
        rows = np.flatnonzero(known & (group == number))
        candidates = tables_for(tables, number)
        if candidates:
            out[rows] = np.min([surprise(table, rows) for table in candidates], axis=0)
    return out


def fit_by_group(
    group: Groups,
    statistic: NDArray[np.floating],
    known: NDArray[np.bool_],
    fit: Callable[[NDArray[np.floating]], SurvivalFunction] = fit_pareto_tail,
) -> dict[int, SurvivalFunction]:
    """A survival function for each group that has enough known threads."""
    numbers, counts = np.unique(group[known], return_counts=True)
    return {
        int(number): fit(statistic[known & (group == number)])
        for number, count in zip(numbers, counts, strict=True)
        if count >= MIN_SAMPLE
    }


def survival_arrays(name: str, tables: Mapping[int, SurvivalFunction]) -> dict[str, NDArray[np.float32]]:
    """The arrays to store, with keys below `name/group`."""
    return {key: array for group, table in tables.items() for key, array in table.arrays(f"{name}/{group}").items()}


def restore_survivals(arrays: Arrays, name: str) -> dict[int, SurvivalFunction]:
    return {group: SurvivalFunction.restore(arrays, f"{name}/{group}") for group in stored_groups(arrays, name)}


def stored_groups(arrays: Arrays, name: str) -> list[int]:
    """The groups that have arrays below `name`."""
    depth = name.count("/") + 1
    return sorted({int(key.split("/")[depth]) for key in arrays if key.startswith(f"{name}/")})
