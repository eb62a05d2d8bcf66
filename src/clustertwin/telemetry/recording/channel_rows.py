"""The channels of a node or of its jobs <-> the rows of an array: one channel in each row, as a ratio."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import Channel, Schema
from clustertwin.core.traces import NodeChannels, Trace
from clustertwin.telemetry.recording.array_reader import ArrayReader
from clustertwin.telemetry.recording.layout import RATIO, ArrayLayout
from clustertwin.telemetry.recording.ticks import Ticks


def rows_of_node(trace: Trace, array: ArrayLayout) -> Trace:
    """The node channels of a trace, in the order of a segment, as the rows of its array."""
    assert trace.node_channels is not None
    names = trace.node_channels.schema.names
    values = np.full((len(array.rows), trace.values.shape[1], 1), np.nan, np.float32)
    for row, name in enumerate(array.node_channels):
        if name in names:
            values[row, :, 0] = trace.node_channels.values[:, names.index(name)]
    valid = ~np.isnan(values[:, :, 0])
    values[~valid] = 0
    return replace(
        trace,
        cpus=array.rows,
        schema=array.schema,
        values=values,
        valid=valid,
        spans=(),
        node_channels=None,
        job_channels=None,
    )


def rows_of_jobs(trace: Trace, array: ArrayLayout, slots: Mapping[str, int]) -> Trace:
    """The channels of the jobs of a trace as the rows of their slots; the other slots are unknown."""
    assert trace.job_channels is not None
    width = len(trace.job_channels.schema)
    values = np.full((len(array.rows), trace.values.shape[1]), np.nan, np.float32)
    for job, of_job in zip(trace.job_channels.jobs, trace.job_channels.values, strict=True):
        if job in slots:
            values[slots[job] * width : (slots[job] + 1) * width] = of_job.T
    channels = NodeChannels(Schema(tuple(Channel(name) for name in array.node_channels)), values.T)
    return rows_of_node(replace(trace, node_channels=channels), array)


def ratios_of_rows(reader: ArrayReader, start_s: int, samples: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """The pieces of an array: where each begins in the range, and its values (row, time); NaN where unknown."""
    for at, ticks in reader.pieces(start_s, samples):  # (row, 1, time)
        values = np.empty((len(ticks), ticks.shape[2], 1), np.float32)
        valid = np.empty(values.shape[:2], np.bool_)
        Ticks.of(RATIO).dequantise(ticks, values, valid)
        yield at, np.where(valid, values[:, :, 0], np.float32(np.nan))
