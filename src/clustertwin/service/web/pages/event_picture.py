"""The heat map of an event: its threads × seconds in the channel that explains it, from memory or from the archive."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import label_of
from clustertwin.core.errors import TwinError
from clustertwin.core.traces import Trace
from clustertwin.service.live.snapshot import Snapshot
from clustertwin.service.store.event_store import Case
from clustertwin.service.web.pages.canvas_data import MOST_ROWS, encoded, levels, shares
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.event_rows import rows_of
from clustertwin.telemetry.moments.moment import Moment
from clustertwin.telemetry.recording.trace_archive import TraceArchive, archive_turn

BEFORE_S, AFTER_S = 60, 60  # shown before and after a closed event
MOST_COLUMNS = 600
PIECE_S = 3600  # of one node, in memory at a time; as long as a chunk of a recording
READING_S = 20.0  # after this time the picture shows what was read


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
    step_s = -(-(end_s - start_s) // MOST_COLUMNS)
    columns = PictureColumns(_first_threads(event, MOST_ROWS), end_s, step_s, -(-(end_s - start_s) // step_s))
    in_time = _read(past, columns, list(_pieces(start_s, end_s, past.page_s)), channel)
    ratios = columns.means()
    if np.isnan(ratios).all():
        why = "no longer has them" if in_time else "is too slow"
        return {"reason": f"These seconds are no longer in memory, and {past.name} {why}."}
    notes = [f"only the first and the last {past.page_s / 7200:g} h"] if end_s - start_s > past.page_s else []
    if not in_time:
        notes.append(f"only the first {len(columns.found)} threads, because more take too long")
    return {**_picture(columns.found, ratios, end_s, step_s), "note": ", ".join(notes)}


def _read(past: TraceArchive, columns: PictureColumns, pieces: list[tuple[int, int]], channel: str) -> bool:
    """Add one piece of one node at a time, because an event can last for weeks. Whether all were read in time."""
    until_s = time.monotonic() + READING_S
    with archive_turn():
        for node in columns.nodes:
            for a, b in pieces:
                if time.monotonic() > until_s:
                    return False
                for trace in past.traces(a, b, (node,)):
                    columns.add(node, trace, channel)
    return True


def _pieces(start_s: int, end_s: int, most_s: int) -> Iterator[tuple[int, int]]:
    """The hours of a range; if it is longer than `most_s`, those of its two ends."""
    half_s = most_s // 2
    is_long = end_s - start_s > most_s
    for begin_s, stop_s in ((start_s, start_s + half_s), (end_s - half_s, end_s)) if is_long else ((start_s, end_s),):
        for a in (begin_s, *range(begin_s // PIECE_S * PIECE_S + PIECE_S, stop_s, PIECE_S)):
            yield a, min(a // PIECE_S * PIECE_S + PIECE_S, stop_s)


def _first_threads(event: Event, most: int) -> list[tuple[str, int]]:
    """The first threads of the event, node by node."""
    return [(node, cpu) for node, cpus in event.places for cpu in cpus][:most]


class PictureColumns:
    """Means of threads over columns of `step_s` seconds. The last column ends at `end_s`; the first can be shorter."""

    def __init__(self, threads: list[tuple[str, int]], end_s: int, step_s: int, count: int) -> None:
        self._rows = {thread: row for row, thread in enumerate(threads)}
        self._end_s, self._step_s = end_s, step_s
        self._total = np.zeros((len(threads), count))  # (thread, column) sums of the known seconds
        self._known = np.zeros((len(threads), count), np.int64)  # (thread, column) how many are known
        self._found: set[tuple[str, int]] = set()

    @property
    def nodes(self) -> list[str]:
        return list(dict.fromkeys(node for node, _ in self._rows))

    @property
    def found(self) -> list[tuple[str, int]]:
        """The threads that a trace had."""
        return [thread for thread in self._rows if thread in self._found]

    def add(self, node: str, trace: Trace, channel: str) -> None:
        threads = {(node, cpu): row for row, cpu in enumerate(trace.cpus) if (node, cpu) in self._rows}
        self._found |= threads.keys()
        ratios = shares(trace, np.array(list(threads.values()), np.intp), channel)  # (thread, second)
        seconds = trace.start_s + np.arange(ratios.shape[1])
        column = self._total.shape[1] - 1 - (self._end_s - 1 - seconds) // self._step_s
        first = np.flatnonzero(np.diff(column, prepend=-1))  # the first second of each column
        here = np.ix_(np.array([self._rows[thread] for thread in threads], np.intp), column[first])
        known = ~np.isnan(ratios)
        self._total[here] += np.add.reduceat(np.where(known, ratios, 0), first, axis=1, dtype=np.float64)
        self._known[here] += np.add.reduceat(known, first, axis=1, dtype=np.int64)

    def means(self) -> NDArray[np.float32]:
        """(thread that was found, column); NaN where no second is known."""
        rows = [self._rows[thread] for thread in self.found]
        known = self._known[rows]
        return np.where(known > 0, self._total[rows] / np.maximum(known, 1), np.nan).astype(np.float32)


def _picture(threads: list[tuple[str, int]], ratios: NDArray[np.float32], end_s: int, step_s: int) -> dict[str, Any]:
    several_nodes = len({node for node, _ in threads}) > 1
    return {
        "labels": [f"{node} {cpu}" if several_nodes else f"cpu{cpu}" for node, cpu in threads],
        "columns": ratios.shape[1],
        "end_s": end_s,
        "step_s": step_s,
        "levels": encoded(levels(ratios)),
    }
