"""Boards without a service: the traces of this host or of an exporter -> boards without scores."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import Trace
from clustertwin.service.terminal.board import Board, Heat, JobLine, NodeLine

HISTORY_S = 300


class LocalBoards:
    """Keeps the last minutes of one node."""

    vets = False

    def __init__(self, traces: Iterator[Trace], watches: str) -> None:
        self._traces, self.watches = traces, watches
        self._seconds: deque[Trace] = deque(maxlen=HISTORY_S)
        self._stopped = False

    def boards(self) -> Iterator[Board]:
        yield Board("warming up: a ratio needs two readings, a second apart")
        for trace in self._traces:
            if self._stopped:
                return
            self._seconds.append(trace)
            yield board_of(list(self._seconds))

    def stop(self) -> None:
        self._stopped = True

    def choose(self, node: str) -> None:
        """There is only one node."""

    def vet(self, event_id: str, verdict: str) -> None:
        raise SettingsError("there are no events without a service; start `twin up`, then `twin top --url http://…`")

    def undo(self, event_id: str) -> None:
        self.vet(event_id, "")


def newest_node_channels(trace: Trace) -> dict[str, float]:
    """The node channels in the last second of a trace, by name."""
    if trace.node_channels is None:
        return {}
    return dict(zip(trace.node_channels.schema.names, trace.node_channels.values[-1].tolist(), strict=True))


def board_of(traces: list[Trace]) -> Board:
    """The traces of one node, oldest first -> its board of the last minutes. Missing seconds are unknown."""
    last = traces[-1]
    traces = [trace for trace in traces if trace.end_s > last.end_s - HISTORY_S]  # its clock may have jumped
    row = {cpu: i for i, cpu in enumerate(last.cpus)}
    start_s = traces[0].start_s
    values = np.full((len(last.cpus), last.end_s - start_s, len(last.schema)), np.nan, np.float32)
    for trace in traces:
        known = [i for i, cpu in enumerate(trace.cpus) if cpu in row]
        measured = np.where(trace.valid[known, :, None], trace.values[known], np.nan)
        first = trace.start_s - start_s
        values[[row[trace.cpus[i]] for i in known], first : first + measured.shape[1]] = measured
    ratios = {name: values[:, :, i] for i, name in enumerate(last.schema.names)}
    ratios = {"busy": 1 - ratios.pop("other"), **ratios}
    heat = Heat(last.node, last.cpus, last.end_s, ratios, newest_node_channels(last))
    line = NodeLine(last.node, len(last.cpus), "not scored", np.nan, 0)
    jobs = tuple(
        JobLine(span.job, span.owner, span.node, len(span.cpus), int(last.end_s - span.start_s)) for span in last.spans
    )
    return Board("watching, not scored", (line,), heat, jobs)
