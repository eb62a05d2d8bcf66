"""An event's threads × seconds in the channel that tells most: from memory, from where the past is kept, or why not."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import TwinError
from clustertwin.service.live.snapshot import Snapshot
from clustertwin.service.store.event_store import Case
from clustertwin.service.web.pages.canvas_data import MOST_ROWS, encoded, levels, shares
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.explanation import rows_of
from clustertwin.telemetry.moments.moment import Moment
from clustertwin.telemetry.recording.trace_archive import TraceArchive

BEFORE_S, AFTER_S = 60, 60  # shown around an event that is over
MOST_COLUMNS = 600


def event_picture(snapshot: Snapshot, case: Case, past: TraceArchive | None) -> dict[str, Any]:
    """Of an open event the last minutes, live; of one that is over its whole time. No rows: `reason` says why."""
    event, channel = case.event, case.why.channel if case.why else "busy"
    about = {"labels": [], "channel": channel, "onset_s": event.onset_s, "over_s": event.end_s, "live": event.open}
    if snapshot.moment is not None and _in_memory(snapshot.moment, event):
        return {**about, **_remembered(snapshot.moment, event, channel), "source": "memory"}
    if past is None:
        return {**about, "reason": "These seconds are no longer in memory, and nothing here keeps what is older."}
    try:
        return {**about, **_kept(past, event, channel, snapshot.now_s), "source": past.name}
    except TwinError as error:
        return {**about, "reason": f"These seconds are no longer in memory, and {past.name} cannot be read: {error}"}


def _in_memory(moment: Moment, event: Event) -> bool:
    """All of it; or, while it goes on, what there is."""
    oldest_s = moment.end_s - moment.values.shape[1]
    begins_s = event.onset_s if event.end_s is not None else event.seen_s
    return begins_s >= oldest_s and len(rows_of(moment, event)) > 0


def _remembered(moment: Moment, event: Event, channel: str) -> dict[str, Any]:
    rows = rows_of(moment, event)[:MOST_ROWS]
    threads = [(moment.nodes[moment.node[row]], int(moment.cpu[row])) for row in rows]
    return _drawn(threads, shares(moment, rows, channel), moment.end_s, 1)


def _kept(past: TraceArchive, event: Event, channel: str, now_s: float) -> dict[str, Any]:
    start_s = event.onset_s - BEFORE_S
    end_s = max(min((event.end_s or event.seen_s) + AFTER_S, int(now_s)), start_s + 1)
    places = dict(_first(event, MOST_ROWS))
    threads: list[tuple[str, int]] = []
    seen = [np.empty((0, end_s - start_s), np.float32)]
    for trace in past.traces(start_s, end_s, tuple(places)):
        rows = [row for row, cpu in enumerate(trace.cpus) if cpu in places[trace.node]]
        threads += [(trace.node, trace.cpus[row]) for row in rows]
        seen.append(shares(trace, np.array(rows, np.intp), channel))
    ratios = np.concatenate(seen)  # (thread, second)
    if np.isnan(ratios).all():
        return {"reason": f"These seconds are no longer in memory, and {past.name} does not have them any more."}
    step_s = -(-ratios.shape[1] // MOST_COLUMNS)
    return _drawn(threads, _thinned(ratios, step_s), end_s, step_s)


def _first(event: Event, most: int) -> list[tuple[str, tuple[int, ...]]]:
    """Its first threads, node by node."""
    places, left = [], most
    for node, cpus in event.places:
        if left > 0:
            places.append((node, cpus[:left]))
            left -= len(cpus)
    return places


def _thinned(ratios: NDArray[np.float32], step_s: int) -> NDArray[np.float32]:
    """(thread, second) -> (thread, column) of `step_s` seconds each, the last one full; the mean of what is known."""
    if step_s == 1:
        return ratios
    lacking = -ratios.shape[1] % step_s
    full = np.pad(ratios, ((0, 0), (lacking, 0)), constant_values=np.nan).reshape(len(ratios), -1, step_s)
    known = ~np.isnan(full)
    total = np.where(known, full, 0).sum(2)
    return np.where(known.any(2), total / np.maximum(known.sum(2), 1), np.nan).astype(np.float32)


def _drawn(threads: list[tuple[str, int]], ratios: NDArray[np.float32], end_s: int, step_s: int) -> dict[str, Any]:
    several = len({node for node, _ in threads}) > 1
    return {
        "labels": [f"{node} {cpu}" if several else f"cpu{cpu}" for node, cpu in threads],
        "columns": ratios.shape[1],
        "end_s": end_s,
        "step_s": step_s,
        "levels": encoded(levels(ratios)),
    }
