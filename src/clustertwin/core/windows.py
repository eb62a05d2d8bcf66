"""Cut traces into windows: (cpu, time, channel) -> (n, length, channel), each with its node, thread, job and time.

A window belongs to a job when that job's span covers it wholly and no other span touches it. Where no span
touches it, the window is "idle"; anything else, two jobs or a job's edge, is "mixed". A window is anomalous
when its job is and at least half of the window lies after the onset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import JobSpan, Trace, Windows


def cut(trace: Trace, length_s: int = 100, stride_s: int | None = None, campaign: str = "", split: str = "") -> Windows:
    """The windows of one node; by default they stand side by side. Wholly invalid ones are dropped."""
    length, stride = steps(length_s, stride_s, trace.interval_s)
    count = max(0, (trace.values.shape[1] - length) // stride + 1)
    if stride == length:
        values = _side_by_side(trace.values[:, : count * length], length)
        valid = _side_by_side(trace.valid[:, : count * length], length)
    elif count:
        sliding = sliding_window_view(trace.values, length, axis=1)[:, ::stride]  # (cpu, n, channel, length)
        values = sliding.swapaxes(2, 3).reshape(-1, length, len(trace.schema))
        valid = sliding_window_view(trace.valid, length, axis=1)[:, ::stride].reshape(-1, length)
    else:
        values, valid = np.empty((0, length, len(trace.schema)), np.float32), np.empty((0, length), np.bool_)
    return describe(trace, values, valid, length_s, stride_s or length_s, campaign, split)


def steps(length_s: int, stride_s: int | None, interval_s: int) -> tuple[int, int]:
    """Length and stride as counts of samples; both must be whole multiples of the cadence."""
    stride_s = length_s if stride_s is None else stride_s
    for name, seconds in (("length", length_s), ("stride", stride_s)):
        if seconds < interval_s or seconds % interval_s:
            raise SettingsError(f"a window's {name} of {seconds} s is no multiple of the cadence of {interval_s} s")
    return length_s // interval_s, stride_s // interval_s


def describe(
    trace: Trace,
    values: NDArray[np.float32],
    valid: NDArray[np.bool_],
    length_s: int,
    stride_s: int,
    campaign: str = "",
    split: str = "",
) -> Windows:
    """Windows from values already cut, cpu after cpu: (cpu * n, length, channel); `trace` gives time, cpus, spans."""
    cpus = len(trace.cpus)
    count = len(values) // cpus if cpus else 0
    starts_s = trace.start_s + stride_s * np.arange(count, dtype=np.int64)
    spans = [span for span in trace.spans if span.node == trace.node]
    which, anomalous = _owners(spans, trace.cpus, starts_s, length_s)
    # Two more rows stand for "no job" (-2) and "more than one" (-1).
    jobs = [span.job for span in spans] + ["", ""]
    types = [span.job_type for span in spans] + ["idle", "mixed"]
    anomalies = [span.anomaly for span in spans] + ["", ""]
    windows = Windows(
        schema=trace.schema,
        values=values,
        valid=valid,
        start_s=np.tile(starts_s, cpus),
        node=np.full(cpus * count, trace.node),
        cpu=np.repeat(np.asarray(trace.cpus, np.int32), count),
        job=np.array(jobs)[which],
        job_type=np.array(types)[which],
        anomaly=np.where(anomalous, np.array(anomalies)[which], ""),
        campaign=np.full(cpus * count, campaign),
        split=np.full(cpus * count, split),
        interval_s=trace.interval_s,
    )
    seen = np.flatnonzero(valid.any(axis=1))
    return windows if len(seen) == len(windows) else windows.take(seen)


def _side_by_side(array: NDArray[Any], length: int) -> NDArray[Any]:
    """(cpu, n * length, …) -> (cpu * n, length, …), a view where memory allows."""
    return array.reshape(-1, length, *array.shape[2:])


def _owners(
    spans: Sequence[JobSpan], cpus: tuple[int, ...], starts_s: NDArray[np.int64], length_s: int
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """For every window, cpu after cpu: the index of its span (-2 none, -1 mixed), and whether it is past the onset."""
    touching = np.zeros((len(cpus), len(starts_s)), np.int32)  # how many spans touch the window
    owner = np.full(touching.shape, -1, np.intp)
    anomalous = np.zeros(touching.shape, np.bool_)
    row = {cpu: i for i, cpu in enumerate(cpus)}
    ends_s = starts_s + length_s
    for i, span in enumerate(spans):
        rows = sorted({row[cpu] for cpu in span.cpus if cpu in row})
        first = int(np.searchsorted(ends_s, span.start_s, side="right"))  # the first window that ends after the start
        last = int(np.searchsorted(starts_s, span.end_s, side="left"))
        if not rows or first >= last:
            continue
        touching[rows, first:last] += 1
        inside = slice(
            int(np.searchsorted(starts_s, span.start_s, side="left")),
            int(np.searchsorted(ends_s, span.end_s, side="right")),
        )
        owner[rows, inside] = i
        onset_s = span.start_s if span.onset_s is None else span.onset_s
        anomalous[rows, inside] = (starts_s[inside] + length_s / 2 >= onset_s) & bool(span.anomaly)
    owner[touching == 0] = -2
    owner[touching > 1] = -1
    return owner.ravel(), anomalous.ravel()
