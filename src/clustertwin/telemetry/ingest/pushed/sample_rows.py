"""Rows of samples: samples, and the series and nodes they belong to -> rows that are filled, and rows that are due.

A node has `ROWS` rows, one for each time that is collected now. The arrays belong to `PushedSamples`, which describes
when a row is returned.
"""

from __future__ import annotations

import numpy as np

from clustertwin.core.compiled import borrowing

#: A row is returned, complete or not, when this many newer ones have begun, …
BEHIND_ROWS = 8
#: … or after this long, if its sender has stopped.
WAIT_S = 30.0
#: A node returns nothing for this long after its first sample: its series arrive one after the other.
SETTLE_S = 6.0
#: Bits of values: a series that has ended, as Prometheus marks it, and a sample that has not arrived. Both are NaN.
STALE = np.uint64(0x7FF0000000000002)
ABSENT = np.uint64(0x7FF80000DEADBEEF)
FREE = np.iinfo(np.int64).min
#: What can happen to a sample.
SAMPLE_OUTCOMES = ("used", "late", "doubled", "old", "ahead", "unwanted")
_USED, LATE, _DOUBLED, _OLD, _AHEAD, _UNWANTED = range(len(SAMPLE_OUTCOMES))


@borrowing
def fill_rows(at, samples, numbers, series, rows, limits, counts):  # type: ignore[no-untyped-def]
    """Put samples from `at` on into their rows -> the place of the first that finds no free row, or the end."""
    series_of, times_ms, bits = samples
    node_of, active, newest_ms, kept = series
    row_ms, row_s, filled, expected, returned_ms = rows
    now_s, oldest_ms, ahead_ms = limits
    while at < len(times_ms):
        number, time_ms, value = numbers[series_of[at]], times_ms[at], bits[at]
        node = node_of[number] if number >= 0 else -1
        if node < 0:
            counts[_UNWANTED] += 1
            at += 1
            continue
        if time_ms < oldest_ms or time_ms > ahead_ms or time_ms <= returned_ms[node]:
            kind = _OLD if time_ms < oldest_ms else (_AHEAD if time_ms > ahead_ms else LATE)
            counts[kind] += 1
            at += 1
            continue
        row, free, oldest = -1, -1, 0
        for k in range(row_ms.shape[1]):
            if row_ms[node, k] == time_ms:
                row = k
            elif row_ms[node, k] == FREE:
                free = k
            if row_ms[node, k] < row_ms[node, oldest]:
                oldest = k
        if row < 0:
            if free < 0:
                if time_ms < row_ms[node, oldest]:
                    counts[LATE] += 1
                    at += 1
                    continue
                return at
            row = free
            row_ms[node, row], row_s[node, row], filled[node, row] = time_ms, now_s, 0
        at += 1
        if kept[number, row] != ABSENT:
            counts[_DOUBLED] += 1
            continue
        counts[_USED] += 1
        kept[number, row] = value if value != ABSENT else STALE
        filled[node, row] += 1
        if time_ms >= newest_ms[number]:
            newest_ms[number] = time_ms
            is_active = value != STALE
            if is_active != active[number]:
                active[number] = is_active
                expected[node] += 1 if is_active else -1
    return at


@borrowing
def due_until(places, rows, now_s, until_ms):  # type: ignore[no-untyped-def]
    """For each node the time of the newest row that can be returned, or FREE."""
    row_ms, row_s, filled, expected, begun_s = rows
    most = row_ms.shape[1]
    for i in range(len(places)):
        node = places[i]
        complete, until = FREE, FREE
        for k in range(most):
            if row_ms[node, k] != FREE and filled[node, k] >= expected[node]:
                complete = max(complete, row_ms[node, k])
        for k in range(most):
            if row_ms[node, k] == FREE:
                continue
            newer = 0
            for other in range(most):
                newer += row_ms[node, other] > row_ms[node, k]
            if row_ms[node, k] < complete or newer >= BEHIND_ROWS or abs(now_s - row_s[node, k]) > WAIT_S:
                until = max(until, row_ms[node, k])
        until_ms[i] = until if abs(now_s - begun_s[node]) >= SETTLE_S else FREE
