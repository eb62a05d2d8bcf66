"""The channels of one node over the last minutes: a moment -> the value of each now, and second by second."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.moments.moment import Moment

#: A node may be a few seconds behind the newest: this is how old the value of now may be.
NOW_S = 10


@dataclass(frozen=True, slots=True)
class ChannelLine:
    """One node channel of one node."""

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


def _now(values: NDArray[np.float32]) -> float:
    recent = values[-NOW_S:]
    known = recent[~np.isnan(recent)]
    return round(float(known[-1]), 4) if len(known) else float("nan")
