"""The events that are still open for a reader: those of the snapshot without the ones judged not to be anomalies."""

from __future__ import annotations

from dataclasses import dataclass, replace

from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.store.event_store import Case, Filter
from clustertwin.telemetry.detection.events.event import Event

#: Verdicts after which an event needs nobody's attention, although its threads may still be above the threshold.
SETTLED = ("dismissed", "new-normal")
_MOST = 100_000


@dataclass(frozen=True, slots=True)
class OpenEvents:
    """Open events, newest first, and the number of those that a verdict has settled."""

    events: tuple[Event, ...]
    settled: int

    def __len__(self) -> int:
        return len(self.events)


def open_events(state: ServiceState) -> OpenEvents:
    ids = {case.id for verdict in SETTLED for case in state.store.events(Filter(open=True, verdict=verdict), _MOST)}
    events = tuple(event for event in state.snapshot.events if event.id not in ids)
    return OpenEvents(events, len(state.snapshot.events) - len(events))


def count_unsettled(state: ServiceState, which: Filter) -> int:
    return state.store.count(which) - _count_settled(state, which)


def unsettled(state: ServiceState, which: Filter, limit: int, offset: int) -> list[Case]:
    """Like `Store.events`, without settled events."""
    cases = state.store.events(which, offset + limit + _count_settled(state, which))
    return [case for case in cases if case.verdict not in SETTLED][offset : offset + limit]


def _count_settled(state: ServiceState, which: Filter) -> int:
    return sum(state.store.count(replace(which, verdict=verdict)) for verdict in SETTLED)
