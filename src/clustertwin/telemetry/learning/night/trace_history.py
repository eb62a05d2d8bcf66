"""Where a night finds its day: recordings, Prometheus or traces in memory -> the traces of any range of seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from clustertwin.core.errors import NoSamples, SettingsError
from clustertwin.core.traces import Trace
from clustertwin.telemetry.ingest.sources import HistorySource
from clustertwin.telemetry.ingest.sources import traces as traces_of
from clustertwin.telemetry.recording import Recording, find


class Past(Protocol):
    """Gives what is known from `start_s` to `end_s`: at most one trace a node, none where nothing is known."""

    def extent_s(self, start_s: int, end_s: int) -> tuple[int, int]:
        """The part of this range in which anything may be known; empty (0, 0) where nothing is."""

    def traces(self, start_s: int, end_s: int) -> list[Trace]: ...


class Recorded:
    """Recordings below some directories."""

    def __init__(self, roots: Sequence[Path]) -> None:
        found = [directory for root in roots for directory in find(root)]
        if not found:
            raise SettingsError(
                f"no recordings below {', '.join(map(str, roots))}; `twin up` and `twin record` make them"
            )
        self.recordings = [Recording.open(directory) for directory in found]

    def extent_s(self, start_s: int, end_s: int) -> tuple[int, int]:
        touching = [r for r in self.recordings if r.start_s < end_s and r.end_s > start_s]
        if not touching:
            return 0, 0
        return max(start_s, min(r.start_s for r in touching)), min(end_s, max(r.end_s for r in touching))

    def traces(self, start_s: int, end_s: int) -> list[Trace]:
        found: dict[str, Trace] = {}
        for recording in self.recordings:
            if recording.start_s >= end_s or recording.end_s <= start_s:
                continue
            for node in recording.nodes:
                trace = recording.trace(node, start_s, end_s)
                # Of two recordings of one node the one that saw more of these seconds is taken.
                if node not in found or trace.valid.sum() > found[node].valid.sum():
                    found[node] = trace
        return list(found.values())


class Asked:
    """A server that answers for ranges of the past."""

    def __init__(self, source: HistorySource) -> None:
        self.source = source

    def extent_s(self, start_s: int, end_s: int) -> tuple[int, int]:
        return start_s, end_s

    def traces(self, start_s: int, end_s: int) -> list[Trace]:
        try:
            return traces_of(self.source, start_s, end_s)[0]
        except NoSamples:
            return []


class Remembered:
    """Traces at hand: of a simulation, or of a test."""

    def __init__(self, known: Sequence[Trace]) -> None:
        self.known = known

    def extent_s(self, start_s: int, end_s: int) -> tuple[int, int]:
        touching = [t for t in self.known if t.start_s < end_s and t.end_s > start_s]
        if not touching:
            return 0, 0
        return max(start_s, min(t.start_s for t in touching)), min(end_s, max(t.end_s for t in touching))

    def traces(self, start_s: int, end_s: int) -> list[Trace]:
        return [_between(t, start_s, end_s) for t in self.known if t.start_s < end_s and t.end_s > start_s]


def _between(trace: Trace, start_s: int, end_s: int) -> Trace:
    start_s, end_s = max(start_s, trace.start_s), min(end_s, trace.end_s)
    here = slice(start_s - trace.start_s, end_s - trace.start_s)
    return replace(trace, start_s=start_s, values=trace.values[:, here], valid=trace.valid[:, here])
