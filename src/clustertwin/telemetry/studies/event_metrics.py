"""Event metrics: a detector and labelled traces -> detected anomalies, their delay after the onset, false events.

Operators see events, not windows. All studies and benchmarks count events by one rule: an event is true if it opened
after the onset of an anomaly in one of its jobs, and false otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.tracker import EventSettings, Tracker
from clustertwin.telemetry.detection.forecast.memory_watch import MemoryWatch
from clustertwin.telemetry.detection.questions.assess import assess
from clustertwin.telemetry.detection.questions.question_memory import JobLabel, QuestionMemory
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import IDLE, LENGTH_S, Moment
from clustertwin.telemetry.moments.trace_buffer import TraceBuffer
from clustertwin.telemetry.simulation.signature import PEER

#: An anomaly counts if its job lasts this long after the onset: a window, a persistence and a stride.
SHORTEST_ANOMALY_S = 300
#: An event that opens within this time after the end of an anomaly still detects it.
GRACE_S = 60


@dataclass(frozen=True, slots=True)
class LabelledAnomaly:
    """One job with an anomaly."""

    job: str
    anomaly: str
    onset_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class AnomalyRecall:
    """How many anomalies of one kind were detected, and how long after their onset."""

    anomaly: str
    total: int
    detected: int
    delays_s: tuple[float, ...]

    @property
    def recall(self) -> float:
        return self.detected / self.total if self.total else float("nan")

    @property
    def delay_s(self) -> float:
        return median(self.delays_s) if self.delays_s else float("nan")


@dataclass(frozen=True, slots=True)
class EventCounts:
    anomalies: tuple[AnomalyRecall, ...]  # by kind
    false: tuple[Event, ...]
    node_days: float

    @property
    def total(self) -> int:
        """The number of anomalies."""
        return sum(row.total for row in self.anomalies)

    @property
    def detected(self) -> int:
        """The number of anomalies with an event."""
        return sum(row.detected for row in self.anomalies)

    @property
    def false_events(self) -> int:
        return len(self.false)

    @property
    def false_per_node_day(self) -> float:
        return self.false_events / self.node_days if self.node_days else float("nan")


def count_events(
    detector: Detector, traces: Sequence[Trace], stride_s: int = 10, shortest_s: float = SHORTEST_ANOMALY_S
) -> EventCounts:
    """Replay one campaign through the buffer, the questions and the tracker of the live service; count its events."""
    opened = track_events(replay(detector, traces, stride_s), detector.threshold, labels=labels_of(traces))
    return match_events(opened, traces, shortest_s)


def replay(detector: Detector, traces: Sequence[Trace], stride_s: int) -> Iterator[tuple[Moment, Scores]]:
    """Score traces as the live service would."""
    buffer = TraceBuffer(traces[0].schema)
    start_s, end_s = min(trace.start_s for trace in traces), max(trace.end_s for trace in traces)
    for now_s in range(start_s + stride_s, end_s + 1, stride_s):
        for trace in traces:
            buffer.push(_live_part(trace, now_s - stride_s, now_s))
        moment = buffer.moment(now_s)
        yield moment, detector.score(moment)


def track_events(
    scored: Iterable[tuple[Moment, Scores]],
    threshold: float,
    settings: EventSettings = EventSettings(),
    labels: Mapping[str, JobLabel] | None = None,
    memory: QuestionMemory | None = None,
) -> list[tuple[int, Event]]:
    """(second of opening, final state) of every event.

    The moments keep their values, because the questions look at them. `memory` is what is known from earlier days.
    """
    tracker, memory, watch = Tracker(settings), memory or QuestionMemory(), MemoryWatch()
    opened: dict[str, int] = {}
    last: dict[str, Event] = {}
    for moment, scores in scored:
        findings = assess(moment, scores, memory, threshold, labels, watch.forecast(moment)).findings
        for change in tracker.update(moment, scores, threshold, findings=findings):
            opened.setdefault(change.event.id, moment.end_s)
            last[change.event.id] = change.event
    last.update({event.id: event for event in tracker.open})
    return [(opened[name], event) for name, event in last.items()]


def labels_of(traces: Sequence[Trace]) -> dict[str, JobLabel]:
    """The names of programs and users that a source would know."""
    return {span.job: JobLabel(span.name, span.user) for trace in traces for span in trace.spans if span.name}


def labelled_anomalies(traces: Sequence[Trace], shortest_s: float = SHORTEST_ANOMALY_S) -> list[LabelledAnomaly]:
    """Every job with an anomaly that lasts at least `shortest_s` after the onset."""
    spans = [span for trace in traces for span in trace.spans if span.anomaly]
    jobs: dict[str, LabelledAnomaly] = {}
    for span in spans:
        anomaly = LabelledAnomaly(span.job, span.anomaly.removesuffix(PEER), _onset_s(span), span.end_s)
        jobs.setdefault(span.job, anomaly)
    return [anomaly for anomaly in jobs.values() if anomaly.end_s - anomaly.onset_s >= shortest_s]


def match_events(
    events: Sequence[tuple[int, Event]], traces: Sequence[Trace], shortest_s: float = SHORTEST_ANOMALY_S
) -> EventCounts:
    """Match events with labelled anomalies by job and time."""
    anomalies = labelled_anomalies(traces, shortest_s)
    onsets_s = {span.job: _onset_s(span) for trace in traces for span in trace.spans if span.anomaly}
    false = [
        event
        for opened_s, event in events
        if not any(job in onsets_s and opened_s > onsets_s[job] for job in event.jobs)
    ]
    rows = []
    for kind in sorted({anomaly.anomaly for anomaly in anomalies}):
        same_kind = [anomaly for anomaly in anomalies if anomaly.anomaly == kind]
        delays = [delay for anomaly in same_kind if (delay := _delay_s(anomaly, events)) is not None]
        rows.append(AnomalyRecall(kind, len(same_kind), len(delays), tuple(delays)))
    return EventCounts(tuple(rows), tuple(false), sum(trace.end_s - trace.start_s for trace in traces) / 86_400)


def merge_counts(counts: Sequence[EventCounts]) -> EventCounts:
    """The counts of several campaigns, added up."""
    kinds: dict[str, AnomalyRecall] = {}
    for row in (row for each in counts for row in each.anomalies):
        sum_ = kinds.get(row.anomaly, AnomalyRecall(row.anomaly, 0, 0, ()))
        kinds[row.anomaly] = AnomalyRecall(
            row.anomaly, sum_.total + row.total, sum_.detected + row.detected, sum_.delays_s + row.delays_s
        )
    rows = tuple(kinds[name] for name in sorted(kinds))
    false = tuple(event for each in counts for event in each.false)
    return EventCounts(rows, false, sum(each.node_days for each in counts))


def _delay_s(anomaly: LabelledAnomaly, events: Sequence[tuple[int, Event]]) -> float | None:
    times = [
        opened_s
        for opened_s, event in events
        if anomaly.job in event.jobs and anomaly.onset_s < opened_s <= anomaly.end_s + GRACE_S
    ]
    return min(times) - anomaly.onset_s if times else None


def _onset_s(span: JobSpan) -> float:
    return span.start_s if span.onset_s is None else span.onset_s


def _live_part(trace: Trace, start_s: int, end_s: int) -> Trace:
    """The seconds from `start_s` to `end_s`, with the spans that a live source would know by then."""
    a, b = max(start_s, trace.start_s) - trace.start_s, min(end_s, trace.end_s) - trace.start_s
    known = (span for span in trace.spans if span.start_s < end_s and span.end_s > start_s - LENGTH_S)
    spans = tuple(span for span in known if span.job_type != IDLE)
    nodes, jobs = trace.node_channels, trace.job_channels
    return replace(
        trace,
        start_s=trace.start_s + a,
        values=trace.values[:, a:b],
        valid=trace.valid[:, a:b],
        spans=spans,
        node_channels=nodes and replace(nodes, values=nodes.values[a:b]),
        job_channels=jobs and replace(jobs, values=jobs.values[:, a:b]),
    )
