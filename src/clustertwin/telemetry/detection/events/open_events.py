"""The open events of a tracker, indexed by job and by node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from clustertwin.telemetry.detection.events.event import Event


@dataclass(slots=True, eq=False)
class OpenEvent:
    """An open event, and how long it has been calm or unknown."""

    event: Event
    reported: Event  # as of the last change that the tracker returned
    calm_s: int = 0
    unknown_s: int = 0

    def report_due(self) -> bool:
        """Whether threads or jobs were added, the view or the score changed clearly, or a minute has passed."""
        before, now = self.reported, self.event
        return (
            before.places != now.places
            or before.jobs != now.jobs
            or before.view != now.view
            or now.score >= before.score + 1
            or now.seen_s >= before.seen_s + 60
        )


class OpenEventIndex:
    """Find the open event that a new alarm belongs to, without a search through all of them."""

    def __init__(self, events: Iterable[OpenEvent]) -> None:
        self._by_job: dict[str, OpenEvent] = {}
        self._by_node: dict[str, list[OpenEvent]] = {}
        for event in events:
            self.add(event)

    def add(self, entry: OpenEvent) -> None:
        self._by_job.update(dict.fromkeys(entry.event.jobs, entry))
        for node in entry.event.nodes:
            here = self._by_node.setdefault(node, [])
            if entry not in here:
                here.append(entry)

    def find(self, new: Event, same_cause_s: int) -> OpenEvent | None:
        """The open event of the same job or of the same unallocated threads, else of the same node, view and time."""
        for job in new.jobs:
            if job in self._by_job:
                return self._by_job[job]
        nearby = [entry for node in new.nodes for entry in self._by_node.get(node, ())]
        unallocated = [entry for entry in nearby if not new.jobs and not entry.event.jobs]
        same_cause = [
            entry
            for entry in nearby
            if entry.event.view == new.view and abs(new.onset_s - entry.event.onset_s) <= same_cause_s
        ]
        return next(iter(unallocated + same_cause), None)
