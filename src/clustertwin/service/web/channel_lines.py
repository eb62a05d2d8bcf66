"""The channels of a node or a job over the last minutes: a moment -> the value of each now, and second by second."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.moments.moment import Moment

#: A node may be a few seconds behind the newest: this is how old the value of now may be.
NOW_S = 10


@dataclass(frozen=True, slots=True)
class ChannelLine:
    """One channel of one node, or of one job on a node."""

    name: str
    label: str
    help: str
    now: float  # the newest known value; NaN if there is none
    values: NDArray[np.float32]  # (second,), NaN where unknown


def channel_lines(moment: Moment | None, node: str) -> tuple[ChannelLine, ...]:
    """A line for each node channel; empty if the node is unknown or its source has no node channels."""
    if moment is None or moment.node_channels is None or node not in moment.nodes:
        return ()
    values = moment.node_channels.values[moment.nodes.index(node)]  # (second, channel)
    return tuple(
        ChannelLine(channel.name, channel.label or channel.name, channel.help, _now(values[:, i]), values[:, i])
        for i, channel in enumerate(moment.node_channels.schema.channels)
    )


def job_channel_lines(moment: Moment | None, job: str) -> dict[str, tuple[ChannelLine, ...]]:
    """Node -> a line for each channel of the job there; empty if the job is unknown or its source has no channels."""
    if moment is None or moment.job_channels is None:
        return {}
    channels = moment.job_channels
    return {
        moment.nodes[channels.node[row]]: tuple(
            ChannelLine(
                channel.name,
                channel.label or channel.name,
                channel.help,
                _now(channels.values[row, :, i]),
                channels.values[row, :, i],
            )
            for i, channel in enumerate(channels.schema.channels)
        )
        for row in channels.rows_of(job)
    }


def _now(values: NDArray[np.float32]) -> float:
    recent = values[-NOW_S:]
    known = recent[~np.isnan(recent)]
    return round(float(known[-1]), 4) if len(known) else float("nan")
