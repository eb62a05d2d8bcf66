"""The settings of the live loop."""

from __future__ import annotations

from dataclasses import dataclass

from clustertwin.service.live.stride import DEFAULT_S
from clustertwin.telemetry.detection.events.tracker import EventSettings
from clustertwin.telemetry.moments.trace_buffer import MOST_THREADS_TOGETHER


@dataclass(frozen=True, slots=True)
class LoopSettings:
    stride_s: int = DEFAULT_S  # between two scorings, if scoring is fast enough
    stale_s: int = 15  # a node without data for this long is stale
    forget_s: int = 3600  # a node without data for this long is dropped
    most_threads: int = MOST_THREADS_TOGETHER  # of all nodes; those of further nodes are refused
    in_step_s: int = 5  # nodes at most this far behind the newest are waited for
    history_s: int = 3600  # of node scores, for the pages
    events: EventSettings = EventSettings()
