"""The /metrics page of the service: the published state -> Prometheus' text format, with a limited number of series.

Threads are included only on request. An unknown value is absent, never zero. Beyond the limits, the nodes and jobs with
the highest scores and the newest events are included, and `twin_metrics_left_out` counts the others.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from math import isnan
from pathlib import Path
from typing import get_args

import numpy as np

from clustertwin import __version__
from clustertwin.core.durations import WEEK_S
from clustertwin.core.errors import TwinError
from clustertwin.service.act.action_journal import Journal
from clustertwin.service.live.members.member_board import MemberBoard
from clustertwin.service.live.problems import all_problems
from clustertwin.service.live.queue.start_board import StartBoard
from clustertwin.service.live.snapshot import EngineState, ModelState, Phase, ServiceState, Snapshot
from clustertwin.service.outgoing import notifications
from clustertwin.service.store.event_store import VERDICTS, Case, Filter, Store
from clustertwin.telemetry.exporter.text.text_format import CONTENT_TYPE, label_value
from clustertwin.telemetry.ingest.pushed.sample_rows import SAMPLE_OUTCOMES
from clustertwin.telemetry.learning.champions.learning_state import read_state

__all__ = ["CONTENT_TYPE", "SeriesLimits", "render"]

MOST_MEASURED = 10_000  # actions whose savings are added up
LONGEST_LABEL = 200
LONGEST_TEXT = 600  # of a label that is a sentence
LEARNING = ("learning", "frozen", "halted", "unreadable")

Sample = tuple[Mapping[str, str], float]  # labels, value


@dataclass(frozen=True, slots=True)
class SeriesLimits:
    """The largest number of series of each kind."""

    nodes: int = 10_000
    jobs: int = 2_000
    events: int = 500
    texts: int = 100  # titles and reasons of events; they change every few minutes
    threads: int = 200_000


@dataclass(frozen=True, slots=True)
class MetricFamily:
    name: str
    about: str
    samples: Sequence[Sample]
    longest: int = LONGEST_LABEL  # characters of a label's value

    @property
    def kind(self) -> str:
        return "counter" if self.name.endswith("_total") else "gauge"


def render(
    state: ServiceState,
    threads: bool = False,
    limits: SeriesLimits = SeriesLimits(),
    members: MemberBoard | None = None,
) -> str:
    """The text of a scrape. `threads` adds the series of every hardware thread, `members` those of joined clusters."""
    snapshot = state.snapshot
    families = [
        *_loop(snapshot, state.age_s, len(all_problems(state))),
        *_nodes(snapshot, limits.nodes),
        *_jobs(snapshot, limits.jobs),
        *_events(state, limits),
        *_actions(state.store),
        *_model(snapshot.model),
        *_home(state.home),
        *_starts(state.starts),
    ]
    if state.receiver is not None:
        families += _pushed(state.receiver.counts())
    if members is not None:
        families += _clusters(members, limits.nodes, time.monotonic())
    if threads:
        families += _threads(snapshot, limits.threads)
    left_out = {
        "node": len(snapshot.nodes) - limits.nodes,
        "job": len(snapshot.jobs) - limits.jobs,
        "event": len(snapshot.events) - limits.events,
        "thread": len(snapshot.scores) - limits.threads if threads and snapshot.scores is not None else 0,
    }
    samples = [({"kind": kind}, max(count, 0)) for kind, count in left_out.items()]
    families.append(
        MetricFamily(
            "twin_metrics_left_out", "Nodes, jobs, events and threads beyond the limits of this page.", samples
        )
    )
    return "".join(line for family in families for line in _lines(family))


def _pushed(counts: Mapping[str, int]) -> Iterator[MetricFamily]:
    """What became of pushed samples and series."""
    samples = [({"outcome": kind}, float(counts.get(kind, 0))) for kind in SAMPLE_OUTCOMES]
    about = "Pushed samples: used, unwanted, or dropped because they were late, doubled, old or ahead."
    yield MetricFamily("twin_pushed_samples_total", about, samples)
    yield _single(
        "twin_pushed_refused_series_total",
        "Pushed series that could not be used, counted at each push.",
        counts.get("refused", 0),
    )
    yield _single("twin_pushed_series", "Series that are known from pushes.", counts.get("series", 0))


def _loop(snapshot: Snapshot, age_s: float, problems: int) -> Iterator[MetricFamily]:
    yield MetricFamily("twin_build_info", "Version of clustertwin.", [({"version": __version__}, 1)])
    yield _single(
        "twin_loop_timestamp_seconds", "Time of the feed's clock at the last turn of the loop.", snapshot.now_s
    )
    yield _single("twin_loop_snapshot_age_seconds", "Time since the loop published its last snapshot.", age_s)
    failures = [({"part": part}, float(count)) for part, count in snapshot.failures_total]
    yield MetricFamily("twin_loop_failures_total", "Failures inside the loop that did not end it, by part.", failures)
    yield _single("twin_loop_lag_seconds", "Age of the newest data.", snapshot.lag_s)
    yield _single("twin_loop_stride_seconds", "Time between two scorings.", snapshot.stride_s)
    yield _single("twin_loop_scoring_seconds", "Duration of the last scoring.", snapshot.scoring_s)
    yield _single("twin_loop_scored_threads_total", "Number of thread scores since the start.", snapshot.scored_total)
    yield from _engine(snapshot.engine)
    yield _single(
        "twin_loop_problems",
        "Number of current problems, such as a source that does not answer or a full disk.",
        problems,
    )
    phases = [({"phase": phase}, float(phase == snapshot.phase)) for phase in get_args(Phase)]
    yield MetricFamily("twin_loop_phase", "1 for the current phase of the loop.", phases)
    faults = [({"fault": f.name}, getattr(snapshot.faults, f.name)) for f in fields(snapshot.faults)]
    yield MetricFamily("twin_sample_faults_total", "Faulty samples or thread-seconds.", faults)


def _engine(engine: EngineState) -> Iterator[MetricFamily]:
    yield MetricFamily("twin_engine_info", "Where threads are scored.", [({"engine": engine.name}, 1)])
    if engine.name == "ray":
        workers = [({"state": "wanted"}, engine.wanted), ({"state": "ready"}, engine.workers)]
        yield MetricFamily("twin_engine_actors", "Ray actors at the last scoring.", workers)
        yield _single(
            "twin_engine_fell_back_total",
            "Scorings in the service's own process instead of on Ray.",
            engine.fell_back_total,
        )
        yield _single("twin_engine_lost_total", "Scorings in which an actor's scores are missing.", engine.lost_total)


def _nodes(snapshot: Snapshot, most: int) -> Iterator[MetricFamily]:
    nodes = snapshot.nodes[:most]
    scores: list[Sample] = [({"node": node.node}, node.score) for node in nodes]
    yield MetricFamily(
        "twin_node_score", "Highest score of the node's threads: -log10 of its p-value among normal windows.", scores
    )
    errors: list[Sample] = [({"node": node.node}, node.error) for node in nodes]
    yield MetricFamily("twin_node_error_ratio", "Mean squared reconstruction error of the node's threads.", errors)
    states: list[Sample] = []
    for node in nodes:
        normal = node.threads - node.alarming - node.unknown
        for state, count in (("normal", normal), ("alarming", node.alarming), ("unknown", node.unknown)):
            states.append(({"node": node.node, "state": state}, count))
    yield MetricFamily(
        "twin_node_threads", "Hardware threads by state: normal, alarming (above the threshold) or unknown.", states
    )
    # A node without any data has no age.
    ages = [({"node": node.node}, max(snapshot.now_s - node.heard_s, 0.0)) for node in nodes if node.heard_s]
    yield MetricFamily("twin_node_staleness_seconds", "Time since the last data of the node.", ages)


def _jobs(snapshot: Snapshot, most: int) -> Iterator[MetricFamily]:
    jobs = snapshot.jobs[:most]
    yield MetricFamily(
        "twin_job_score", "Highest score of the job's threads.", [({"jobid": j.job}, j.score) for j in jobs]
    )
    errors = [({"jobid": job.job}, job.error) for job in jobs]
    yield MetricFamily("twin_job_error_ratio", "Mean squared reconstruction error of the job's threads.", errors)


def _threads(snapshot: Snapshot, most: int) -> Iterator[MetricFamily]:
    scores, moment = snapshot.scores, snapshot.scored
    if scores is None or moment is None:
        return
    where = [{"node": moment.nodes[n], "cpu": str(cpu)} for n, cpu in zip(moment.node, moment.cpu, strict=True)][:most]
    known = scores.score.tolist()[:most]
    error = np.where(np.isnan(scores.score), np.nan, scores.error).tolist()[:most]
    yield MetricFamily("twin_thread_score", "Score of a hardware thread.", list(zip(where, known, strict=True)))
    yield MetricFamily(
        "twin_thread_error_ratio",
        "Mean squared reconstruction error of a hardware thread.",
        list(zip(where, error, strict=True)),
    )


def _events(state: ServiceState, limits: SeriesLimits) -> Iterator[MetricFamily]:
    snapshot, store, shadow = state.snapshot, state.store, state.shadow
    yield _single("twin_shadow", "1 while the site is not known and nobody is notified, else 0.", float(shadow.on))
    opened = [({"view": view}, count) for view, count in snapshot.opened_total]
    yield MetricFamily("twin_events_opened_total", "Events opened since the start, by view.", opened)
    views = Counter({view: 0 for view, _ in snapshot.opened_total})
    views.update(event.view for event in snapshot.events)
    yield MetricFamily(
        "twin_events_open",
        "Open events by view, including silenced ones.",
        [({"view": v}, n) for v, n in views.items()],
    )
    try:
        cases = store.events(Filter(open=True), limit=limits.events)
        silences = store.quiet_periods.silences(snapshot.now_s)
        week_s = snapshot.now_s - WEEK_S
        verdicts = [({"verdict": v or "none"}, store.count(Filter(verdict=v, start_s=week_s))) for v in ("", *VERDICTS)]
    except TwinError:
        yield _single("twin_store_readable", "1 if the stored events can be read, else 0.", 0)
        return
    yield _single("twin_store_readable", "1 if the stored events can be read, else 0.", 1)
    yield MetricFamily("twin_events_week", "Events of the last seven days, by verdict.", verdicts)
    announced = [case for case in cases if notifications.needs_notification(case, silences, shadow)]
    scores = [(_labels(case), case.event.score) for case in announced]
    yield MetricFamily(
        "twin_event_score",
        "Score of an open event that is not dismissed, not new normal, not silenced and not in shadow.",
        scores,
    )
    threads = [({"event": case.id}, case.event.threads) for case in announced]
    yield MetricFamily("twin_event_threads", "Number of threads of such an event.", threads)
    onsets = [({"event": case.id}, case.event.onset_s) for case in announced]
    yield MetricFamily("twin_event_onset_timestamp_seconds", "When such an event began.", onsets)
    texts: list[Sample] = [(_texts(case), 1) for case in announced[: limits.texts]]
    yield MetricFamily(
        "twin_event_info", "Title, reason, next step and owner of the newest such events.", texts, LONGEST_TEXT
    )


def _actions(store: Store) -> Iterator[MetricFamily]:
    """Actions and savings. Absent if the store cannot be read; of a damaged action, only its state is counted."""
    try:
        rows = store.database.rows("SELECT state, COUNT(*) AS actions FROM actions GROUP BY state ORDER BY state")
        measured = Journal(store.database).measured(MOST_MEASURED)
    except TwinError:
        return
    states = [({"state": str(row["state"])}, float(row["actions"])) for row in rows]
    yield MetricFamily("twin_actions", "Actions by state.", states)
    promised = sum(action.promise[0] for action in measured)
    saved = sum(action.measured_node_hours or 0.0 for action in measured)
    yield MetricFamily(
        "twin_savings_node_hours",
        "Node-hours of the actions that are measured, promised and measured.",
        [({"kind": "promised"}, promised), ({"kind": "measured"}, saved)],
    )


def _labels(case: Case) -> Mapping[str, str]:
    """The labels of an event. All but view and channel, which the rules leave out, are the same until it closes."""
    event = case.event
    channel = case.why.channel if case.why else ""
    identity = {"event": event.id, "node": event.node, "jobid": event.job, "cause": event.cause}
    return {**identity, "view": event.view, "channel": channel}


def _texts(case: Case) -> Mapping[str, str]:
    """What an alert says. These labels change with the event, so they are not labels of the alert."""
    why = case.why
    return {
        "event": case.id,
        "title": case.event.title,
        "reason": why.sentence if why else "",
        "next_step": why.next_step if why else "",
        "owner": case.event.owner,
    }


def _model(model: ModelState | None) -> Iterator[MetricFamily]:
    if model is None:
        return
    info = {"version": model.version, "model": model.name, "origin": model.origin}
    yield MetricFamily("twin_model_info", "The detector in service.", [(info, 1)])
    yield _single("twin_model_threshold", "A thread with a score above this threshold is unusual.", model.threshold)
    yield _single(
        "twin_model_false_alarm_ratio",
        "Calibrated share of normal windows above the threshold.",
        model.false_alarm_rate,
    )
    yield _single("twin_model_since_timestamp_seconds", "When the detector was put into service.", model.since_s)
    yield _single(
        "twin_models_refused_total",
        "Champions that were refused because they are damaged or unsuitable.",
        model.refused_total,
    )


def _home(home: Path) -> Iterator[MetricFamily]:
    stopped: list[Sample] = []
    try:
        learning = read_state(home)
        word, ended_s = learning.status, learning.ended_s
        if learning.reason:
            stopped.append(({"state": word, "reason": learning.reason}, 1))
    except TwinError:
        word, ended_s = "unreadable", 0.0
    states = [({"state": state}, float(state == word)) for state in LEARNING]
    yield MetricFamily("twin_learning_state", "1 for the current state of nightly learning.", states)
    yield MetricFamily(
        "twin_learning_stopped_info", "Why nightly learning is stopped; absent while it is not.", stopped
    )
    if ended_s:
        yield _single(
            "twin_learning_ended_timestamp_seconds", "When the last night ended, with or without success.", ended_s
        )
    yield _single("twin_notifications_pending", "Messages that are not delivered yet.", notifications.pending(home))


def _starts(board: StartBoard | None) -> Iterator[MetricFamily]:
    """Forecasts of starts and their calibration; nothing if the service makes none."""
    if board is None:
        return
    record = board.record
    if board.asked_s:
        yield _single("twin_start_forecast_timestamp_seconds", "When the newest forecast was made.", board.asked_s)
        yield _single("twin_start_forecast_seconds", "How long the newest forecast took.", board.took_s)
        yield _single("twin_start_waiting_jobs", "Waiting jobs in the newest forecast.", len(board.waiting))
    yield _single("twin_start_forecast_failing", "1 if the newest forecast failed.", float(bool(board.problem)))
    yield _single("twin_start_forecasts_total", "Waiting jobs whose start was forecast.", record.forecasts)
    yield _single("twin_start_judged_total", "First forecasts of jobs that were then seen running.", record.judged)
    yield _single("twin_start_lost_total", "Jobs with a forecast that left the queue and were not seen.", record.lost)
    yield _single(
        "twin_start_within_minute_ratio",
        "Share of the newest judged first forecasts whose likeliest start was right within 60 s.",
        record.within_minute_ratio,
    )
    yield _single(
        "twin_start_interval_ratio",
        "Share of the newest judged first forecasts whose start lay in the 80 % interval.",
        record.interval_ratio,
    )


def _clusters(board: MemberBoard, most: int, now_s: float) -> Iterator[MetricFamily]:
    """The joined clusters. One that is not watched has no numbers but those that say so."""
    up = [({"cluster": member.name}, float(member.is_watched(now_s))) for member in board.members]
    yield MetricFamily("twin_cluster_up", "1 if the joined cluster is watched, else 0.", up)
    ages = [({"cluster": member.name}, member.age_s(now_s)) for member in board.members]
    yield MetricFamily("twin_cluster_answer_age_seconds", "Time since the last answer of a joined cluster.", ages)
    threads: list[Sample] = []
    for member in board.members:
        last = member.summary
        if last is None:
            continue
        counts = {"unwatched": last.threads}
        if member.is_watched(now_s):
            normal = last.threads - last.alarming - last.unknown
            counts = {"normal": normal, "alarming": last.alarming, "unknown": last.unknown}
        threads += [({"cluster": member.name, "state": state}, count) for state, count in counts.items()]
    yield MetricFamily("twin_cluster_threads", "Hardware threads of a joined cluster by state.", threads)
    watched = [({"cluster": member.name}, summary) for member, summary in board.watched(now_s)]
    yield MetricFamily("twin_cluster_nodes", "Nodes of a joined cluster.", [(c, len(s.nodes)) for c, s in watched])
    yield MetricFamily(
        "twin_cluster_events_open",
        "Open events of a joined cluster that no verdict has settled.",
        [(c, s.open_events) for c, s in watched],
    )
    lags = [(c, s.lag_s) for c, s in watched]
    yield MetricFamily("twin_cluster_lag_seconds", "Age of the newest data of a joined cluster.", lags)
    nodes = board.nodes(now_s)
    scores = [({"cluster": member.name, "node": node.node}, node.score) for member, node in nodes[:most]]
    yield MetricFamily("twin_cluster_node_score", "Highest score of the threads of a node in a joined cluster.", scores)


def _single(name: str, about: str, value: float) -> MetricFamily:
    return MetricFamily(name, about, [({}, value)])


def _lines(family: MetricFamily) -> Iterator[str]:
    yield f"# HELP {family.name} {family.about}\n# TYPE {family.name} {family.kind}\n"
    for labels, value in family.samples:
        if isnan(value):
            continue
        inside = ",".join([f'{name}="{_quoted(text, family.longest)}"' for name, text in labels.items()])
        yield f"{family.name}{{{inside}}} {value:.10g}\n" if inside else f"{family.name} {value:.10g}\n"


@lru_cache(65_536)  # the names are the same in every scrape
def _quoted(text: str, longest: int = LONGEST_LABEL) -> str:
    """Escape a label value and shorten it. The hash keeps two long names apart."""
    if len(text) > longest:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        text = f"{text[: longest - 9]}…{digest}"
    return label_value(text)
