"""The service's own /metrics: the published state -> Prometheus's text format, bounded however large the cluster.

Threads are left out unless asked for. What is unknown is absent, never zero. Of nodes and jobs beyond the bounds the
strangest are kept, of events the newest, and `twin_metrics_left_out` says how many were not.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from math import isnan
from pathlib import Path
from typing import get_args

import numpy as np

from clustertwin import __version__
from clustertwin.core.errors import TwinError
from clustertwin.service.live.snapshot import EngineState, ModelState, Phase, ServiceState, Snapshot
from clustertwin.service.outgoing import notifications
from clustertwin.service.store.event_store import VERDICTS, Case, Filter, Store
from clustertwin.telemetry.exporter.text_format import CONTENT_TYPE, label_value
from clustertwin.telemetry.learning.champions.learning_state import read_state

__all__ = ["CONTENT_TYPE", "Bounds", "render"]

WEEK_S = 7 * 86_400
LONGEST_LABEL = 200
LEARNING = ("learning", "frozen", "halted", "unreadable")

Sample = tuple[Mapping[str, str], float]  # labels, value


@dataclass(frozen=True, slots=True)
class Bounds:
    """At most so many series of a kind."""

    nodes: int = 10_000
    jobs: int = 2_000
    events: int = 500
    threads: int = 200_000


@dataclass(frozen=True, slots=True)
class Family:
    name: str
    about: str
    samples: Sequence[Sample]

    @property
    def kind(self) -> str:
        return "counter" if self.name.endswith("_total") else "gauge"


def render(state: ServiceState, threads: bool = False, bounds: Bounds = Bounds()) -> str:
    """One scrape; `threads` adds a series for every hardware thread."""
    snapshot = state.snapshot
    families = [*_loop(snapshot), *_nodes(snapshot, bounds.nodes), *_jobs(snapshot, bounds.jobs)]
    families += [*_events(snapshot, state.store, bounds.events), *_model(snapshot.model), *_home(state.home)]
    if threads:
        families += _threads(snapshot, bounds.threads)
    left = {
        "node": len(snapshot.nodes) - bounds.nodes,
        "job": len(snapshot.jobs) - bounds.jobs,
        "event": len(snapshot.events) - bounds.events,
        "thread": len(snapshot.scores) - bounds.threads if threads and snapshot.scores is not None else 0,
    }
    out = [({"kind": kind}, max(count, 0)) for kind, count in left.items()]
    families.append(Family("twin_metrics_left_out", "Beyond the bounds of this page.", out))
    return "".join(line for family in families for line in _lines(family))


def _loop(snapshot: Snapshot) -> Iterator[Family]:
    yield Family("twin_build_info", "The release.", [({"version": __version__}, 1)])
    # `time() - twin_loop_timestamp_seconds` grows where the loop itself hangs; all the rest would stand still.
    yield _one("twin_loop_timestamp_seconds", "The feed's clock at the last look.", snapshot.now_s)
    yield _one("twin_loop_lag_seconds", "From the newest second heard of to now.", snapshot.lag_s)
    yield _one("twin_loop_stride_seconds", "Between two scorings, as it is now.", snapshot.stride_s)
    yield _one("twin_loop_scoring_seconds", "How long the last scoring took.", snapshot.scoring_s)
    yield _one("twin_loop_scored_threads_total", "Threads scored since the start.", snapshot.scored_total)
    yield from _engine(snapshot.engine)
    yield _one("twin_loop_problems", "Sources that do not answer, disks that are full.", len(snapshot.problems))
    phases = [({"phase": phase}, float(phase == snapshot.phase)) for phase in get_args(Phase)]
    yield Family("twin_loop_phase", "1 for the phase the loop is in.", phases)
    faults = [({"fault": f.name}, getattr(snapshot.faults, f.name)) for f in fields(snapshot.faults)]
    yield Family("twin_sample_faults_total", "Samples, or thread-seconds, that were not as they should be.", faults)


def _engine(engine: EngineState) -> Iterator[Family]:
    yield Family("twin_engine_info", "Where moments are scored.", [({"engine": engine.name}, 1)])
    if engine.name == "ray":
        workers = [({"state": "wanted"}, engine.wanted), ({"state": "ready"}, engine.workers)]
        yield Family("twin_engine_actors", "Ray actors, as of the last scoring.", workers)
        yield _one("twin_engine_fell_back_total", "Moments the service had to score itself.", engine.fell_back_total)
        yield _one("twin_engine_lost_total", "Moments of which a part is unknown.", engine.lost_total)


def _nodes(snapshot: Snapshot, most: int) -> Iterator[Family]:
    nodes = snapshot.nodes[:most]
    scores: list[Sample] = [({"node": node.node}, node.score) for node in nodes]
    yield Family("twin_node_score", "Of its strangest thread: -log10 of how rarely a normal thread looks so.", scores)
    errors: list[Sample] = [({"node": node.node}, node.error) for node in nodes]
    yield Family("twin_node_error_ratio", "Mean squared error of its threads' ratios as reconstructed.", errors)
    states: list[Sample] = []
    for node in nodes:
        normal = node.threads - node.alarming - node.unknown
        for state, count in (("normal", normal), ("alarming", node.alarming), ("unknown", node.unknown)):
            states.append(({"node": node.node, "state": state}, count))
    yield Family("twin_node_threads", "Its hardware threads, by what their scores say.", states)
    # A node that was never heard of has no age.
    ages = [({"node": node.node}, max(snapshot.now_s - node.heard_s, 0.0)) for node in nodes if node.heard_s]
    yield Family("twin_node_staleness_seconds", "Since it was last heard of.", ages)


def _jobs(snapshot: Snapshot, most: int) -> Iterator[Family]:
    jobs = snapshot.jobs[:most]
    yield Family("twin_job_score", "Of its strangest thread on any node.", [({"jobid": j.job}, j.score) for j in jobs])
    errors = [({"jobid": job.job}, job.error) for job in jobs]
    yield Family("twin_job_error_ratio", "Mean squared error of its threads' ratios as reconstructed.", errors)


def _threads(snapshot: Snapshot, most: int) -> Iterator[Family]:
    scores, moment = snapshot.scores, snapshot.scored
    if scores is None or moment is None:
        return
    where = [{"node": moment.nodes[n], "cpu": str(cpu)} for n, cpu in zip(moment.node, moment.cpu, strict=True)][:most]
    known = scores.score.tolist()[:most]
    error = np.where(np.isnan(scores.score), np.nan, scores.error).tolist()[:most]
    yield Family("twin_thread_score", "Of each hardware thread.", list(zip(where, known, strict=True)))
    yield Family("twin_thread_error_ratio", "Of each hardware thread.", list(zip(where, error, strict=True)))


def _events(snapshot: Snapshot, store: Store, most: int) -> Iterator[Family]:
    opened = [({"view": view}, count) for view, count in snapshot.opened_total]
    yield Family("twin_events_opened_total", "Events since the start, by the view that saw them.", opened)
    views = Counter({view: 0 for view, _ in snapshot.opened_total})
    views.update(event.view for event in snapshot.events)
    yield Family("twin_events_open", "By view, silenced ones too.", [({"view": v}, n) for v, n in views.items()])
    try:
        cases = store.events(Filter(open=True), limit=most)
        silences = store.quiet.silences(snapshot.now_s)
        week_s = snapshot.now_s - WEEK_S
        said = [({"verdict": v or "none"}, store.count(Filter(verdict=v, start_s=week_s))) for v in ("", *VERDICTS)]
    except TwinError:
        yield _one("twin_store_readable", "0 where the events on disk cannot be read.", 0)
        return
    yield _one("twin_store_readable", "0 where the events on disk cannot be read.", 1)
    yield Family("twin_events_week", "Events of the last seven days, by verdict.", said)
    told = [case for case in cases if notifications.worth_telling(case, silences)]
    scores = [(_labels(case), case.event.score) for case in told]
    yield Family("twin_event_score", "Open events to be heard of: neither dismissed nor silenced.", scores)
    threads = [({"event": case.id}, case.event.threads) for case in told]
    yield Family("twin_event_threads", "Threads in each of these events.", threads)
    onsets = [({"event": case.id}, case.event.onset_s) for case in told]
    yield Family("twin_event_onset_timestamp_seconds", "When each of these events began.", onsets)


def _labels(case: Case) -> Mapping[str, str]:
    """Owners stay out: more people read metrics than a job's page."""
    event = case.event
    node = event.nodes[0] if event.nodes else ""
    channel = case.why.channel if case.why else ""
    return {"event": event.id, "node": node, "jobid": event.job, "view": event.view, "channel": channel}


def _model(model: ModelState | None) -> Iterator[Family]:
    if model is None:
        return
    info = {"version": model.version, "model": model.name, "origin": model.origin}
    yield Family("twin_model_info", "The detector that scores now.", [(info, 1)])
    yield _one("twin_model_threshold", "Scores above it alarm.", model.threshold)
    yield _one("twin_model_false_alarm_ratio", "Of normal windows, as it was calibrated.", model.false_alarm_rate)
    yield _one("twin_model_since_timestamp_seconds", "Since when it scores.", model.since_s)
    yield _one("twin_models_refused_total", "Damaged or unfit, and not taken.", model.refused_total)


def _home(home: Path) -> Iterator[Family]:
    stopped: list[Sample] = []
    try:
        learning = read_state(home)
        word, ended_s = learning.status, learning.ended_s
        if learning.reason:
            stopped.append(({"state": word, "reason": learning.reason}, 1))
    except TwinError:
        word, ended_s = "unreadable", 0.0
    states = [({"state": state}, float(state == word)) for state in LEARNING]
    yield Family("twin_learning_state", "1 for the state nightly learning is in.", states)
    yield Family("twin_learning_stopped_info", "Why nothing is learned, while nothing is.", stopped)
    if ended_s:
        yield _one("twin_learning_ended_timestamp_seconds", "When the last night ended, however it did.", ended_s)
    yield _one("twin_notifications_pending", "Messages that were not delivered yet.", notifications.pending(home))


def _one(name: str, about: str, value: float) -> Family:
    return Family(name, about, [({}, value)])


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.about}\n# TYPE {family.name} {family.kind}\n"
    for labels, value in family.samples:
        if isnan(value):
            continue
        inside = ",".join([f'{name}="{_quoted(text)}"' for name, text in labels.items()])
        yield f"{family.name}{{{inside}}} {value:.10g}\n" if inside else f"{family.name} {value:.10g}\n"


@lru_cache(65_536)  # the same names at every scrape
def _quoted(text: str) -> str:
    """The inside of a label's quotes; two long names must not become the same series."""
    if len(text) > LONGEST_LABEL:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        text = f"{text[: LONGEST_LABEL - 9]}…{digest}"
    return label_value(text)
