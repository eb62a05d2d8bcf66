"""The heat map of an event: its threads × seconds in the channel that explains it, from memory or from the archive."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import label_of
from clustertwin.core.errors import TwinError
from clustertwin.service.live.snapshot import Snapshot
from clustertwin.service.store.event_store import Case
from clustertwin.service.web.pages.canvas_data import MOST_ROWS, encoded, levels, shares
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.explanation import rows_of
from clustertwin.telemetry.moments.moment import Moment
from clustertwin.telemetry.recording.trace_archive import TraceArchive

BEFORE_S, AFTER_S = 60, 60  # shown before and after a closed event
MOST_COLUMNS = 600


def event_picture(snapshot: Snapshot, case: Case, past: TraceArchive | None) -> dict[str, Any]:
    """The last minutes of an open event, or the whole time of a closed one. Without rows, `reason` says why."""
    event, channel = case.event, case.why.channel if case.why else "busy"
    header = {
        "labels": [],
        "channel": channel,
        "label": label_of(channel),
        "onset_s": event.onset_s,
        "over_s": event.end_s,
        "live": event.open,
    }
    if snapshot.moment is not None and _in_memory(snapshot.moment, event):
        return {**header, **_from_memory(snapshot.moment, event, channel), "source": "memory"}
    if past is None:
        return {
            **header,
            "reason": "These seconds are no longer in memory, and this service has no archive of older ones.",
        }
    try:
        return {**header, **_from_archive(past, event, channel, snapshot.now_s), "source": past.name}
    except TwinError as error:
        return {**header, "reason": f"These seconds are no longer in memory, and {past.name} cannot be read: {error}"}


def _in_memory(moment: Moment, event: Event) -> bool:
    """Whether memory has the whole of a closed event, or the last seconds of an open one."""
    oldest_s = moment.end_s - moment.values.shape[1]
    begins_s = event.onset_s if event.end_s is not None else event.seen_s
    return begins_s >= oldest_s and len(rows_of(moment, event)) > 0


def _from_memory(moment: Moment, event: Event, channel: str) -> dict[str, Any]:
    rows = rows_of(moment, event)[:MOST_ROWS]
    threads = [(moment.nodes[moment.node[row]], int(moment.cpu[row])) for row in rows]
    return _picture(threads, shares(moment, rows, channel), moment.end_s, 1)


def _from_archive(past: TraceArchive, event: Event, channel: str, now_s: float) -> dict[str, Any]:
    start_s = event.onset_s - BEFORE_S
    end_s = max(min((event.end_s or event.seen_s) + AFTER_S, int(now_s)), start_s + 1)
    places = dict(_first_threads(event, MOST_ROWS))
    threads: list[tuple[str, int]] = []
    series = [np.empty((0, end_s - start_s), np.float32)]
    for trace in past.traces(start_s, end_s, tuple(places)):
        rows = [row for row, cpu in enumerate(trace.cpus) if cpu in places[trace.node]]
        threads += [(trace.node, trace.cpus[row]) for row in rows]
        series.append(shares(trace, np.array(rows, np.intp), channel))
    ratios = np.concatenate(series)  # (thread, second)
    if np.isnan(ratios).all():
        return {"reason": f"These seconds are no longer in memory, and {past.name} no longer has them."}
    step_s = -(-ratios.shape[1] // MOST_COLUMNS)
    return _picture(threads, _thinned(ratios, step_s), end_s, step_s)


def _first_threads(event: Event, most: int) -> list[tuple[str, tuple[int, ...]]]:
    """The first threads of the event, node by node."""
    places, left = [], most
    for node, cpus in event.places:
        if left > 0:
            places.append((node, cpus[:left]))
            left -= len(cpus)
    return places


def _thinned(ratios: NDArray[np.float32], step_s: int) -> NDArray[np.float32]:
    """(thread, second) -> (thread, column): means of the known seconds. The first column can be shorter."""
    if step_s == 1:
        return ratios
    missing = -ratios.shape[1] % step_s
    columns = np.pad(ratios, ((0, 0), (missing, 0)), constant_values=np.nan).reshape(len(ratios), -1, step_s)
    known = ~np.isnan(columns)
    total = np.where(known, columns, 0).sum(2)
    return np.where(known.any(2), total / np.maximum(known.sum(2), 1), np.nan).astype(np.float32)


def _picture(threads: list[tuple[str, int]], ratios: NDArray[np.float32], end_s: int, step_s: int) -> dict[str, Any]:
    several_nodes = len({node for node, _ in threads}) > 1
    return {
        "labels": [f"{node} {cpu}" if several_nodes else f"cpu{cpu}" for node, cpu in threads],
        "columns": ratios.shape[1],
        "end_s": end_s,
        "step_s": step_s,
        "levels": encoded(levels(ratios)),
    }
