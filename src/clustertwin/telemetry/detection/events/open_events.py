"""The open events of a tracker, indexed by job and by node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from clustertwin.telemetry.detection.events.causes import UNUSUAL
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.questions.finding import MEMORY_CAUSES


@dataclass(slots=True, eq=False)
class OpenEvent:
    """An open event, how long it has been calm or unknown, and how long its threads have shown another cause."""

    event: Event
    reported: Event  # as of the last change that the tracker returned
    calm_s: int = 0
    unknown_s: int = 0
    own_cause_s: int = 0  # when its threads last showed its own cause
    other_cause: str = ""
    other_since_s: int = 0

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

    def has_changed_cause(self, cause: str, since_s: int, now_s: int, needed_s: int) -> bool:
        """Whether another cause, seen since `since_s`, has been the only one for `needed_s`, up to now."""
        if cause in (self.event.cause, UNUSUAL) or not self.event.cause:
            self.other_cause, self.own_cause_s = "", now_s
        elif cause != self.other_cause:
            self.other_cause, self.other_since_s = cause, max(since_s, self.own_cause_s)
        return bool(self.other_cause) and now_s - self.other_since_s >= needed_s


class OpenEventIndex:
    """Find the open event that a new alarm belongs to, without a search through all of them."""

    def __init__(self, events: Iterable[OpenEvent]) -> None:
        self._by_job: dict[str, list[OpenEvent]] = {}
        self._by_node: dict[str, list[OpenEvent]] = {}
        for event in events:
            self.add(event)

    def add(self, entry: OpenEvent) -> None:
        for index, names in ((self._by_job, entry.event.jobs), (self._by_node, entry.event.nodes)):
            for name in names:
                here = index.setdefault(name, [])
                if entry not in here:
                    here.append(entry)

    def remove(self, entry: OpenEvent) -> None:
        for index, names in ((self._by_job, entry.event.jobs), (self._by_node, entry.event.nodes)):
            for name in names:
                index[name].remove(entry)

    def find(self, new: Event, memory: bool = False) -> OpenEvent | None:
        """The open event of the same job, or of the same node's threads without a job. The same cause comes first.

        With `memory`, among those about memory only, otherwise among the others.
        """
        if new.jobs:
            same = [entry for job in new.jobs for entry in self._by_job.get(job, ())]
        else:
            same = [entry for node in new.nodes for entry in self._by_node.get(node, ()) if not entry.event.jobs]
        same = [entry for entry in same if (entry.event.cause in MEMORY_CAUSES) == memory]
        return min(same, key=lambda entry: entry.event.cause != new.cause, default=None)

    def find_on_node(self, new: Event, same_cause_s: int) -> OpenEvent | None:
        """The open event of other jobs of the same node with the same cause, which began at about the same time."""
        return next(
            (
                entry
                for node in new.nodes
                for entry in self._by_node.get(node, ())
                if entry.event.cause == new.cause
                and entry.event.jobs
                and abs(new.onset_s - entry.event.onset_s) <= same_cause_s
            ),
            None,
        )
