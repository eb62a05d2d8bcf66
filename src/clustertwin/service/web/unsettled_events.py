"""The events that are still open for a reader: those of the snapshot without the ones judged not to be anomalies."""

from __future__ import annotations

from dataclasses import dataclass

from clustertwin.service.live.snapshot import ServiceState
from clustertwin.telemetry.detection.events.event import Event


@dataclass(frozen=True, slots=True)
class OpenEvents:
    """Open events, newest first, and the number of those that a verdict has settled."""

    events: tuple[Event, ...]
    settled: int

    def __len__(self) -> int:
        return len(self.events)


def open_events(state: ServiceState) -> OpenEvents:
    """Every page and every second of a stream asks for them, so the store is only asked for the settled ids."""
    everything, settled = state.snapshot.events, state.store.settled_open()
    events = tuple(event for event in everything if event.id not in settled) if settled else everything
    return OpenEvents(events, len(everything) - len(events))
