"""How well events are found: a detector and labelled traces -> which anomalies became events, how late, how many false.

What a person asks of alarms is counted in events, not in windows: of the anomalies there were, how many were told of;
how long after their onset; and how often a healthy node disturbs somebody. There is one rule: an event is true if it
opened after the onset of an anomaly in a job of its own, and false otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.tracker import EventSettings, Tracker
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import IDLE, LENGTH_S, Moment
from clustertwin.telemetry.moments.trace_buffer import TraceBuffer

PEER = "/peer"
#: An anomaly is looked for when its job goes on for so long after the onset: a window, a persistence, a stride.
LEAST_S = 300
#: An event that opens so soon after an anomaly's end still is about it.
GRACE_S = 60


@dataclass(frozen=True, slots=True)
class Truth:
    """One job that went wrong."""

    job: str
    anomaly: str
    onset_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Found:
    """What became of the anomalies of one kind."""

    anomaly: str
    there: int
    found: int
    delays_s: tuple[float, ...]

    @property
    def recall(self) -> float:
        return self.found / self.there if self.there else float("nan")

    @property
    def delay_s(self) -> float:
        return median(self.delays_s) if self.delays_s else float("nan")


@dataclass(frozen=True, slots=True)
class Result:
    found: tuple[Found, ...]
    false: tuple[Event, ...]  # that no anomaly explains
    node_days: float

    @property
    def there(self) -> int:
        """Anomalies that were looked for."""
        return sum(row.there for row in self.found)

    @property
    def seen(self) -> int:
        """… of which an event told."""
        return sum(row.found for row in self.found)

    @property
    def false_events(self) -> int:
        return len(self.false)

    @property
    def false_per_node_day(self) -> float:
        return self.false_events / self.node_days if self.node_days else float("nan")


def count_events(detector: Detector, traces: Sequence[Trace], stride_s: int = 10, least_s: float = LEAST_S) -> Result:
    """Replay one campaign through the ring and the tracker of the live service, and judge what comes of it."""
    return judge(track(score_all(detector, traces, stride_s), detector.threshold), traces, least_s)


def score_all(detector: Detector, traces: Sequence[Trace], stride_s: int) -> Iterator[tuple[Moment, Scores]]:
    """Traces as a live loop would have scored them; what a moment was made of is not kept."""
    ring = TraceBuffer(traces[0].schema)
    start_s, end_s = min(trace.start_s for trace in traces), max(trace.end_s for trace in traces)
    for now_s in range(start_s + stride_s, end_s + 1, stride_s):
        for trace in traces:
            ring.push(_piece(trace, now_s - stride_s, now_s))
        moment = ring.moment(now_s)
        scores = detector.score(moment)
        yield replace(moment, values=moment.values[:, :0], valid=moment.valid[:, :0]), scores


def track(
    scored: Iterable[tuple[Moment, Scores]], threshold: float, settings: EventSettings = EventSettings()
) -> list[tuple[int, Event]]:
    """(the second it opened, the event as it was in the end) of every event."""
    tracker = Tracker(settings)
    opened: dict[str, int] = {}
    last: dict[str, Event] = {}
    for moment, scores in scored:
        for change in tracker.update(moment, scores, threshold):
            opened.setdefault(change.event.id, moment.end_s)
            last[change.event.id] = change.event
    last.update({event.id: event for event in tracker.open})
    return [(opened[name], event) for name, event in last.items()]


def truths(traces: Sequence[Trace], least_s: float = LEAST_S) -> list[Truth]:
    """Every job that goes wrong and goes on for at least so long after that."""
    spans = [span for trace in traces for span in trace.spans if span.anomaly]
    jobs: dict[str, Truth] = {}
    for span in spans:
        truth = Truth(span.job, span.anomaly.removesuffix(PEER), _onset_s(span), span.end_s)
        jobs.setdefault(span.job, truth)
    return [truth for truth in jobs.values() if truth.end_s - truth.onset_s >= least_s]


def judge(events: Sequence[tuple[int, Event]], traces: Sequence[Trace], least_s: float = LEAST_S) -> Result:
    """Match events and truths by their jobs and times."""
    there = truths(traces, least_s)
    wrong = {span.job: _onset_s(span) for trace in traces for span in trace.spans if span.anomaly}
    false = [
        event for opened_s, event in events if not any(job in wrong and opened_s > wrong[job] for job in event.jobs)
    ]
    found = []
    for anomaly in sorted({truth.anomaly for truth in there}):
        mine = [truth for truth in there if truth.anomaly == anomaly]
        delays = [delay for truth in mine if (delay := _delay_s(truth, events)) is not None]
        found.append(Found(anomaly, len(mine), len(delays), tuple(delays)))
    return Result(tuple(found), tuple(false), sum(trace.end_s - trace.start_s for trace in traces) / 86_400)


def merged(results: Sequence[Result]) -> Result:
    """Several campaigns as one."""
    kinds: dict[str, Found] = {}
    for one in (found for result in results for found in result.found):
        known = kinds.get(one.anomaly, Found(one.anomaly, 0, 0, ()))
        kinds[one.anomaly] = Found(
            one.anomaly, known.there + one.there, known.found + one.found, known.delays_s + one.delays_s
        )
    ordered = tuple(kinds[name] for name in sorted(kinds))
    false = tuple(event for result in results for event in result.false)
    return Result(ordered, false, sum(r.node_days for r in results))


def _delay_s(truth: Truth, events: Sequence[tuple[int, Event]]) -> float | None:
    times = [
        opened_s
        for opened_s, event in events
        if truth.job in event.jobs and truth.onset_s < opened_s <= truth.end_s + GRACE_S
    ]
    return min(times) - truth.onset_s if times else None


def _onset_s(span: JobSpan) -> float:
    return span.start_s if span.onset_s is None else span.onset_s


def _piece(trace: Trace, start_s: int, end_s: int) -> Trace:
    """The trace's seconds from `start_s` on; of its spans those that a live source would have seen by then."""
    a, b = max(start_s, trace.start_s) - trace.start_s, min(end_s, trace.end_s) - trace.start_s
    known = (span for span in trace.spans if span.start_s < end_s and span.end_s > start_s - LENGTH_S)
    spans = tuple(span for span in known if span.job_type != IDLE)
    return replace(
        trace, start_s=trace.start_s + a, values=trace.values[:, a:b], valid=trace.valid[:, a:b], spans=spans
    )
