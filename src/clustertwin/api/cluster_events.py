"""Events in Python: detector, traces -> the events that the service would open, with their titles and reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from clustertwin.core.errors import NoSamples, SettingsError
from clustertwin.core.tables import ColumnTable
from clustertwin.core.traces import Trace
from clustertwin.telemetry.detection.batch_scoring import score_batches
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.event_rows import held_rows, rows_to_explain
from clustertwin.telemetry.detection.events.explanation import Explanation, explain, with_measure
from clustertwin.telemetry.detection.events.explanation_text import title_of
from clustertwin.telemetry.detection.events.tracker import Tracker
from clustertwin.telemetry.detection.forecast.memory_watch import MemoryWatch
from clustertwin.telemetry.detection.questions.assess import assess
from clustertwin.telemetry.detection.questions.finding import Finding
from clustertwin.telemetry.detection.questions.question_memory import LONGEST_STEP_S, JobLabel, QuestionMemory
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import IDLE, WINDOW_S, Moment, moments

_AT_ONCE = 48  # moments in memory


@dataclass(frozen=True, slots=True, repr=False)
class ClusterEvents(ColumnTable):
    """The events of some telemetry, in the order in which they began."""

    events: tuple[Event, ...]
    reasons: Mapping[str, Explanation]  # by event, where one is known
    start_s: int  # the first second of the telemetry

    def __len__(self) -> int:
        return len(self.events)

    @property
    def titles(self) -> list[str]:
        """What is wrong with which job, in an operator's words."""
        return [event.title for event in self.events]

    def table(self) -> Mapping[str, Any]:
        """A row for each event. `end_s` is NaN while it is open; `strength` is in thresholds times its limit."""
        events, reasons = self.events, [self.reasons.get(event.id) for event in self.events]
        return {
            "id": np.array([event.id for event in events], np.str_),
            "title": np.array(self.titles, np.str_),
            "question": np.array([event.question for event in events], np.str_),
            "cause": np.array([event.cause for event in events], np.str_),
            "job": np.array([event.job for event in events], np.str_),
            "node": np.array([event.node for event in events], np.str_),
            "threads": np.array([event.threads for event in events], np.int64),
            "onset_s": np.array([event.onset_s for event in events], np.int64),
            "end_s": np.array([np.nan if event.end_s is None else event.end_s for event in events], np.float64),
            "strength": np.array([event.score for event in events], np.float64),
            "reason": np.array([why.sentence if why else "" for why in reasons], np.str_),
            "next_step": np.array([why.next_step if why else "" for why in reasons], np.str_),
        }

    def caption(self) -> str:
        still = sum(event.open for event in self.events)
        return f"{len(self):,} {'event' if len(self) == 1 else 'events'}, {still:,} still open at the end"


def find_events(detector: Detector, traces: Sequence[Trace], every_s: int) -> ClusterEvents:
    """Ask the three questions every `every_s` seconds, and track the findings, as the service does."""
    if not 1 <= every_s <= LONGEST_STEP_S:
        raise SettingsError(
            f"every_s is between 1 and {LONGEST_STEP_S} s, not {every_s}: a finding must be seen to last"
        )
    tracker, memory, watch = Tracker(), QuestionMemory(), MemoryWatch()
    if not traces:
        raise NoSamples("no node to look at")
    spans = [span for trace in traces for span in trace.spans]
    labels = {span.job: JobLabel(span.name, span.user or span.owner) for span in spans}
    owners = {job: label.user for job, label in labels.items()}
    events: dict[str, Event] = {}
    reasons: dict[str, Explanation] = {}
    scored = False
    for moment, scores in _scored(detector, traces, every_s):
        scored = True
        found = assess(moment, scores, memory, detector.threshold, labels, watch.forecast(moment)).findings
        for change in tracker.update(
            moment, scores, detector.threshold, model=detector.version, owners=owners, findings=found
        ):
            event = change.event
            why = None if change.kind == "closed" else _reason(detector, moment, scores, event, found, reasons)
            if why is not None:
                reasons[event.id] = why
                event = replace(event, title=title_of(event, why))
                tracker.entitle(event.id, event.title)
            events[event.id] = event
    if not scored:
        raise NoSamples(f"an event needs {WINDOW_S} s of every node; this telemetry is shorter")
    events |= {event.id: event for event in tracker.open}
    ordered = sorted(events.values(), key=lambda event: (event.onset_s, event.id))
    return ClusterEvents(tuple(ordered), reasons, min(trace.start_s for trace in traces))


def _scored(detector: Detector, traces: Sequence[Trace], every_s: int) -> Iterator[tuple[Moment, Scores]]:
    """Every moment from the first full window on, as the service scores it. A recorded pause is no job."""
    live = [
        replace(trace, spans=tuple(span for span in trace.spans if span.job_type != IDLE)) for trace in traces
    ]  # fmt: skip
    first_s = min(trace.start_s for trace in traces) + WINDOW_S
    coming = (moment for moment, _ in moments(live, every_s, first_s=first_s))
    while batch := list(islice(coming, _AT_ONCE)):
        yield from zip(batch, score_batches(detector, batch), strict=True)


def _reason(
    detector: Detector,
    moment: Moment,
    scores: Scores,
    event: Event,
    found: Sequence[Finding],
    reasons: Mapping[str, Explanation],
) -> Explanation | None:
    """Why the event is open. None while its threads show another cause: it keeps its title and its reason."""
    nearby = rows_to_explain(moment, event)
    part = moment.take(nearby)
    before = reasons[event.id].before if event.id in reasons else None
    why = explain(detector, part, scores.take(nearby), held_rows(part, event), None, event, before)
    if why is None or why.cause != event.cause:
        return None
    if why.by_shape:
        return why
    mine = [finding for finding in found if (finding.job, finding.cause) == (event.job, event.cause)]
    mine = [finding for finding in mine if event.job or finding.node == event.node]
    return with_measure(why, mine[0]) if mine else None
