"""The live loop: feed -> trace buffer -> detector -> tracker -> store, and a snapshot each second.

`turn` does the work of one second; `run` calls it until the service stops. No error of another part ends the loop: if
a source is silent its seconds are unknown, if the disk is full the loop tries again, a damaged champion is refused, and
a node whose data cannot be used is left out. The snapshot's `problems` names them; `turn_failures` counts them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil, floor
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import CPU
from clustertwin.core.errors import InputError, describe
from clustertwin.core.traces import JobSpan, Trace, check_trace
from clustertwin.service.live import health_summary
from clustertwin.service.live.beside.recording_thread import TraceRecorder
from clustertwin.service.live.champion_loading import Loading, RepeatedLoading
from clustertwin.service.live.event_reasons import Reasons
from clustertwin.service.live.feeds.contract import Feed
from clustertwin.service.live.feeds.heard_nodes import HeardNodes
from clustertwin.service.live.feeds.node_clocks import NodeClocks
from clustertwin.service.live.feeds.thread_growth import ThreadGrowth
from clustertwin.service.live.loop_settings import LoopSettings
from clustertwin.service.live.score_history import NodeScores
from clustertwin.service.live.scorer import InProcessScorer, Scorer
from clustertwin.service.live.scoring_turns import ScoringRound
from clustertwin.service.live.snapshot import ModelState, Phase, ServiceState, Snapshot, stale_nodes
from clustertwin.service.live.stride import Stride
from clustertwin.service.live.turn_failures import RESTART_AFTER, LoopFailed, TurnFailures
from clustertwin.service.store.event_store import Filter
from clustertwin.service.store.program_tables import ProgramTables
from clustertwin.service.store.quiet_periods import MaintenanceWindow
from clustertwin.service.store.running_jobs import RunningJobsFile
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.explanation import Explanation
from clustertwin.telemetry.detection.events.tracker import Tracker
from clustertwin.telemetry.detection.forecast.memory_watch import MemoryWatch
from clustertwin.telemetry.detection.questions.finding import Finding
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import WINDOW_S, Moment
from clustertwin.telemetry.moments.trace_buffer import TraceBuffer

if TYPE_CHECKING:  # importing them imports torch, which takes seconds
    from clustertwin.telemetry.detection.detector import Detector
    from clustertwin.telemetry.detection.questions.question_memory import QuestionMemory
    from clustertwin.telemetry.learning.champions.handover import Handover

#: Up to this many threads, the newest data is published every second; above, once a stride.
EVERY_SECOND_THREADS = 4096
#: A turn scores for about this long. If all threads take longer, they are scored in a round of several turns.
TURN_S = 0.4
#: The speed of scoring that is assumed before the first scoring.
THREADS_PER_S = 50_000
#: The file that names the detector in service.
CHAMPION = "champion.json"
#: More nodes than one service can watch. A source that invents names must not fill the memory.
MOST_NODES = 20_000
#: A smaller step back of the clock is waited for. After a larger one all seconds are collected again, which takes a
#: window.
LONGEST_WAIT_S = WINDOW_S - 10
#: Suspicions that are published. The others follow when these are settled.
MOST_SUSPECTS = 64
#: Findings without an event that are published.
MOST_INFORMATION = 10_000


class Loop:
    """The work of the loop's thread. Until the detector is loaded, which takes seconds, data is only collected."""

    def __init__(
        self,
        state: ServiceState,
        feed: Feed,
        handover: Loading,
        settings: LoopSettings = LoopSettings(),
        recorder: TraceRecorder | None = None,
        score: Scorer = InProcessScorer(),
        clock: Callable[[], float] = time.monotonic,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self.state, self.feed, self.settings = state, feed, settings
        self._beat = beat  # called after each turn, for a watchdog
        self._loading, self._recorder, self._score, self._clock = handover, recorder, score, clock
        self._handover: Handover | None = None
        self._buffer = TraceBuffer(CPU, forget_s=settings.forget_s, most_threads=settings.most_threads)
        self._tracker = Tracker(settings.events, [case.event for case in state.store.events(Filter(open=True), 10**6)])
        self._stride = Stride(settings.stride_s)
        self._history = NodeScores(settings.history_s)
        self._heard = HeardNodes(settings.forget_s, settings.in_step_s)
        self._growth = ThreadGrowth(settings.forget_s)
        self._arrived: set[str] = set()  # the nodes that sent something in the last turn in which any did
        self._first_s: int | None = None
        self._unwritten: dict[str, tuple[Event, Explanation | None]] = {}
        self._opened: Counter[str] = Counter()
        self._problems: dict[str, str] = {}
        self._clocks = NodeClocks(self._problems, settings.in_step_s, settings.stale_s)
        self._failures = TurnFailures(self._problems)
        self._windows: list[MaintenanceWindow] = []  # the last that could be read
        self._since_s = 0.0
        self._refused_file = False  # the refused champion was named by a file
        self._round = ScoringRound()
        self._round_s = 0  # the first second of the round
        self._took_s = 0.0  # the work of the round so far
        self._reasons = Reasons(clock)
        self._spans: tuple[tuple[str, ...], Mapping[str, JobSpan]] | None = None
        self._memory = MemoryWatch()
        # A replay begins without what an earlier one has learnt.
        self._tables = None if state.replayed else ProgramTables(state.home, clock)
        self._running = None if state.replayed else RunningJobsFile(state.home, self._memory, clock)
        self._questions: QuestionMemory | None = None  # made with the first findings: its import compiles
        self._now = replace(state.snapshot, events=self._tracker.open)

    def run(self, stop: threading.Event) -> None:
        """Run until `stop` is set, then store the events that are not stored yet. LoopFailed if nothing works."""
        self.state.standing_after_s = max(self.settings.stale_s, 2 * self.settings.stride_s)
        try:
            while not stop.is_set():
                self.turn()
                self._beat()
                self._failures.check()
                if isinstance(self._loading, RepeatedLoading) and self._loading.gave_up:
                    raise LoopFailed(self._problems.get("model", "the detector cannot be loaded"))
                stop.wait(self._pause_s())
        finally:
            # Store events first: the service waits only a few seconds for this thread.
            closing = [
                lambda: self._write([]),
                lambda: self._store_usual(now=True),
                *([self._recorder.close] if self._recorder else []),
            ]
            for close in (*closing, self.feed.close, self._score.close):
                with self._failures.isolated("publishing", "a part of the loop could not be closed"):
                    close()

    def _pause_s(self) -> float:
        """The time to just after the next full second of the feed. A fast replay has four turns a second."""
        if self.feed.patient and not self._loading.done():
            return 0.25  # reading the feed's time would start its clock
        now_s = self.feed.now_s()
        return max((floor(now_s) + 1.05 - now_s) / self.feed.pace, 0.25 if self.feed.pace > 1 else 0.01)

    def turn(self) -> Snapshot:
        """The work of one second: read the feed, score if a scoring is due, publish a snapshot. Never raises."""
        waiting = self.feed.patient and not self._loading.done()
        traces: list[Trace] = []
        with self._failures.isolated("source", "the source could not be read in this second"):
            traces = [] if waiting else self.feed.take()
        now_s = self._now.now_s if waiting else self.feed.now_s()
        self._arrived = {trace.node for trace in traces} or self._arrived
        for trace in traces:
            self._take_in(trace, now_s)
        detector: Detector | None = None
        with self._failures.isolated("model", "the detector in service is unknown in this second"):
            detector = self._detector(now_s)
        with self._failures.isolated("scoring", "this second could not be scored"):
            end_s = self._end_s(now_s)
            if not self._was_set_back(end_s, now_s) and end_s is not None:
                self._score_or_show(detector, end_s, now_s)
        if self._failures.in_a_row("scoring") >= RESTART_AFTER:
            self._restart()
        if self._unwritten:
            self._write([])
        with self._failures.isolated("publishing", "the summary of this second is incomplete"):
            moment = self._now.moment
            forecasts = tuple(self._memory.forecast(moment)) if moment is not None else ()
            self._now = replace(self._summary(now_s), memory_forecasts=forecasts)
        self._failures.end_turn(now_s)
        if self._failures.in_a_row("publishing"):
            self._now = replace(self._now, number=self._now.number + 1, problems=tuple(self._problems.values()))
        self.state.publish(self._now, detector)
        return self._now

    def _take_in(self, trace: Trace, now_s: float) -> None:
        """Add a trace. If that fails, its node alone is left out for a while."""
        if self._failures.in_quarantine(trace.node, now_s):
            return
        try:
            self._add(trace, now_s)
        except Exception as error:
            self._failures.refuse_node(trace.node, error, now_s)
            self._buffer.drop(trace.node)
            self._heard.remove(trace.node)

    def _store_usual(self, now: bool = False) -> None:
        """What is usual for programs and for the jobs that run: every few minutes, or now."""
        if self._tables:
            self._tables.save(self._questions, now)
        if self._running and self._now.scored:
            self._running.save(self._questions, self._now.scored.end_s, now)

    def _restart(self) -> None:
        """Start again: something among the seconds makes every scoring fail."""
        self._forget_seconds()
        self._failures.restarted()

    def _was_set_back(self, end_s: int | None, now_s: float) -> bool:
        """Whether all seconds are forgotten because the clock was set back far.

        After a smaller step the seconds that repeat were scored already: scoring goes on at the last of them.
        Until then it is a problem. Samples of such seconds may also be dropped as late, so that nothing is heard.
        """
        ahead_s = (self._heard.newest_s or 0) - now_s
        least_s = -self.settings.stale_s if "clock" in self._problems else self.settings.in_step_s
        if end_s is None and ahead_s > least_s:
            wait_s = max(round(ahead_s), 1)
            self._problems["clock"] = f"the clock was set back; no new second is heard for the next {wait_s} s"
            return False
        if end_s is None or self._now.scored is None:
            self._problems.pop("clock", None)
            return False
        back_s = self._now.scored.end_s - end_s
        if back_s > LONGEST_WAIT_S:
            self._forget_seconds()
            return True
        if back_s > self.settings.in_step_s or "clock" in self._problems:
            wait_s = max(back_s + self._stride.seconds, 1)
            self._problems["clock"] = f"the clock was set back; no thread is scored for the next {wait_s} s"
        return False

    def _forget_seconds(self) -> None:
        with self._failures.isolated("store", "what is usual for programs is not stored"):
            self._store_usual(now=True)
        self._buffer = TraceBuffer(CPU, forget_s=self.settings.forget_s, most_threads=self.settings.most_threads)
        self._round, self._spans, self._first_s, self._questions = ScoringRound(), None, None, None
        self._tracker.forget_alarms()
        self._heard.clear()
        self._problems.pop("clock", None)
        self._now = replace(self._now, moment=None, scored=None, scores=None, information=(), suspects=())

    def _add(self, trace: Trace, now_s: float) -> None:
        if trace.node not in self._heard and len(self._heard) >= MOST_NODES:
            raise InputError(trace.node, f"the limit of {MOST_NODES} nodes is reached")
        check_trace(trace)
        if self._clocks.is_ahead(trace, now_s):
            return
        self._growth.check(trace.node, trace.cpus, now_s)
        self._buffer.push(trace)
        if self._recorder:
            self._recorder.add(trace)
        self._heard.add(trace)
        self._first_s = trace.start_s if self._first_s is None else min(self._first_s, trace.start_s)

    def _detector(self, now_s: float) -> Detector | None:
        """The current champion; None while it is being loaded."""
        self._problems.pop("model", None)
        if self._handover is None:
            if not self._loading.done():
                return None
            try:
                self._handover, self._since_s = self._loading.result(), now_s
            except Exception as error:
                self._problems["model"] = f"no thread is scored: {describe(error)}"
                return None
        before = self._handover.detector
        detector = self._handover.poll()
        if detector is not before:
            self._since_s = now_s
        if not self._handover.reason:
            self._refused_file = False
            return detector
        exists = (self._handover.home / CHAMPION).exists()
        self._refused_file |= exists
        if exists or not self._refused_file:  # a file that was deleted since is no problem any more
            self._problems["model"] = f"the new champion is refused: {self._handover.reason}"
        return detector

    def _end_s(self, now_s: float) -> int | None:
        """The newest second for which all nodes in step have data; None if there is none."""
        for node in self._heard.forget_old(now_s):
            self._growth.forget(node)
        self._clocks.forget_silent(now_s)
        return self._heard.end_s(self._arrived, None if self._now.moment is None else self._now.moment.end_s)

    def _is_due(self, end_s: int) -> bool:
        if self._now.scored is None:
            return self._first_s is not None and end_s - self._first_s >= WINDOW_S
        if not self._round.over:
            # Prometheus is read every few seconds: if each turn needed a newer second, a round would take many reads.
            return end_s >= self._now.scored.end_s
        if self._now.scored_total == 0:
            return end_s > self._now.scored.end_s
        return end_s - self._round_s >= self._stride.seconds

    def _score_or_show(self, detector: Detector | None, end_s: int, now_s: float) -> None:
        """Score the moment if a scoring is due, else only show it. Before the first scoring, all scores are unknown."""
        if detector is not None and self._is_due(end_s):
            begun_s = self._clock()
            self._score_turn(detector, end_s, now_s)
            self._took_s += self._clock() - begun_s
            if self._round.over:
                if self._now.scoring_s:  # the first scoring also loads compiled code, so its duration is not typical
                    self._stride.update(self._took_s * self.feed.pace)
                self._now = replace(self._now, scoring_s=self._took_s)
            return
        if detector and self._reasons and self._now.scored and self._now.scores:
            self._write(self._reasons.more(detector, self._now.scored, self._now.scores))
        self._buffer.make_room(end_s, self._stride.seconds)
        shown = self._now.moment
        every_s = 1 if shown is None or len(shown) <= EVERY_SECOND_THREADS else self._stride.seconds
        if shown is None or abs(end_s - shown.end_s) >= every_s:
            moment = self._buffer.moment(end_s)
            self._now = replace(self._now, moment=moment)
            if self._now.scored is None:
                self._summarise(moment, health_summary.unknown(moment), np.nan, now_s, self._spans_of(moment))

    def _score_turn(self, detector: Detector, end_s: int, now_s: float) -> None:
        """Score the threads of this turn."""
        moment = self._buffer.moment(end_s)
        if self._round.over:
            self._round.begin(moment, self._parts(moment))
            self._round_s, self._took_s = end_s, 0.0
        rows = self._round.next(moment)
        fresh = self._scores_of(detector, moment.take(rows))
        scores = self._masked(self._round.merge(moment, rows, fresh), moment, now_s)
        self._failures.scored()
        self._problems.pop("clock", None)
        known = self._now.scored_total + int((~np.isnan(fresh.score)).sum())
        self._now = replace(self._now, moment=moment, scored=moment, scores=scores, scored_total=known)
        if self._round.over:
            self._conclude(detector, moment, scores, now_s)

    def _scores_of(self, detector: Detector, part: Moment) -> Scores:
        """The scores of a part. A champion that fails where its predecessor does not is taken out of service."""
        try:
            return self._score(detector, part)
        except Exception as error:
            before = self._handover.before if self._handover else None
            if self._handover is None or before is None:
                raise
            scores = self._score(before, part)
            self._failures.total["model"] += 1
            self._handover.withdraw(f"{detector.version} cannot score: {describe(error)}")
            return scores

    def _parts(self, moment: Moment) -> int:
        """The number of turns of a round. They use half of the stride, so a round is over before the next one."""
        scoring_s = self._now.scoring_s or len(moment) / THREADS_PER_S
        return max(min(ceil(scoring_s / TURN_S), self._stride.seconds // 2), 1)

    def _conclude(self, detector: Detector, moment: Moment, scores: Scores, now_s: float) -> None:
        """After all threads are scored: update and store the events, and summarise nodes and jobs."""
        spans = self._spans_of(moment)
        owners = {job: span.user or span.owner for job, span in spans.items()}
        findings = self._assess(moment, scores, detector.threshold, spans, self._in_maintenance(moment, now_s))
        with self._failures.isolated("store", "what is usual for programs is not stored"):
            self._store_usual()
        changes = self._tracker.update(
            moment, scores, detector.threshold, model=detector.version, owners=owners, findings=findings
        )
        self._opened.update(change.event.view for change in changes if change.kind == "opened")
        self._write(self._reasons.of(detector, moment, scores, changes, findings or ()))
        self._summarise(moment, scores, detector.threshold, now_s, spans)
        self._now = replace(
            self._now, events=self._tracker.open, history=self._history.add(moment.end_s, self._now.nodes)
        )

    def _assess(
        self,
        moment: Moment,
        scores: Scores,
        threshold: float,
        spans: Mapping[str, JobSpan],
        in_maintenance: NDArray[np.bool_],
    ) -> tuple[Finding, ...] | None:
        """Is a job harmed, unlike itself, or new? None if scores open events."""
        if self.settings.events.opened_by == "scores":
            return None
        from clustertwin.telemetry.detection.questions.assess import assess
        from clustertwin.telemetry.detection.questions.no_progress import confirm, suspects
        from clustertwin.telemetry.detection.questions.question_memory import JobLabel, QuestionMemory

        if self._questions is None:
            programs, users = self._tables.load() if self._tables else ({}, {})
            self._questions = QuestionMemory(programs=programs, users=users)
            if self._running:
                self._running.go_on(self._questions, moment.end_s)
        stopped: frozenset[str] = getattr(self.feed, "suspended", frozenset())  # only a feed beside Slurm knows them
        labels = {job: JobLabel(span.name, span.user or span.owner, job in stopped) for job, span in spans.items()}
        assessed = assess(moment, scores, self._questions, threshold, labels, self._now.memory_forecasts)
        hidden = {moment.nodes[n] for n in np.flatnonzero(in_maintenance).tolist()}
        findings = tuple(finding for finding in assessed.findings if finding.node not in hidden)
        information = tuple(finding for finding in findings if not finding.opens_event)[:MOST_INFORMATION]
        self._now = replace(self._now, information=information, suspects=suspects(findings)[:MOST_SUSPECTS])
        return findings + confirm(findings, self.state.hanging_s)

    def _spans_of(self, moment: Moment) -> Mapping[str, JobSpan]:
        """A span of each job, for its owner, name and type. Computed again when a job starts or ends."""
        key = (*moment.jobs, str(moment.end_s // 60))  # once a minute too: names can arrive late
        if self._spans is None or self._spans[0] != key:
            self._spans = key, {span.job: span for span in self._buffer.spans(moment.end_s)}
        return self._spans[1]

    def _summarise(
        self, moment: Moment, scores: Scores, threshold: float, now_s: float, spans: Mapping[str, JobSpan]
    ) -> None:
        stale_before_s = now_s - self.settings.stale_s
        self._now = replace(
            self._now,
            nodes=health_summary.nodes(moment, scores, threshold, stale_before_s, self._in_maintenance(moment, now_s)),
            jobs=health_summary.jobs(moment, scores, threshold, spans),
        )

    def _in_maintenance(self, moment: Moment, now_s: float) -> NDArray[np.bool_]:
        """(node,) whether a node is in a maintenance window."""
        with self._failures.isolated("store", "maintenance windows cannot be read; the last known ones apply"):
            self._windows = list(self.state.store.quiet_periods.maintenance(now_s))
        windows = [window for window in self._windows if window.start_s <= now_s < window.end_s]
        return np.array([any(window.covers(node) for window in windows) for node in moment.nodes], np.bool_)

    def _masked(self, scores: Scores, moment: Moment, now_s: float) -> Scores:
        """The scores, but unknown for nodes in a maintenance window."""
        hidden = self._in_maintenance(moment, now_s)[moment.node]  # (thread,)
        if not hidden.any():
            return scores
        nan = np.float32(np.nan)
        surprise = np.where(hidden[:, None], nan, scores.surprise)
        return replace(scores, score=np.where(hidden, nan, scores.score), surprise=surprise)

    def _write(self, changes: list[tuple[Event, Explanation | None]]) -> None:
        """Store events. If the disk is full, they stay in memory and are stored in a later turn."""
        for event, why in changes:
            self._tracker.entitle(event.id, event.title)
            previous = self._unwritten.get(event.id, (event, None))[1]
            self._unwritten[event.id] = event, why or previous
        try:
            self.state.store.write(self._unwritten.values())
            self._unwritten.clear()
            self._problems.pop("store", None)
        except Exception as error:
            self._failures.total["store"] += 1
            self._problems["store"] = f"{len(self._unwritten)} events are not stored yet: {describe(error)}"

    def _summary(self, now_s: float) -> Snapshot:
        newest_s = self._heard.newest_s
        phase, ready_in_s = self._phase(now_s, newest_s)
        nodes = health_summary.heard(self._now.nodes, self._heard.known_s, now_s - self.settings.stale_s)
        problems = (*self.feed.problems, *self._problems.values(), *filter(None, [self._score.state.problem]))
        if self._recorder and self._recorder.problem:
            problems += (self._recorder.problem,)
        problems += tuple(part.problem for part in (self._tables, self._running) if part and part.problem)
        return replace(
            self._now,
            number=self._now.number + 1,
            now_s=now_s,
            phase=phase,
            nodes=stale_nodes(nodes) if phase == "stale" else nodes,
            ready_in_s=ready_in_s,
            source=self.feed.source,
            model=self._model(),
            stride_s=self._stride.seconds,
            stride_why=self._stride.why,
            lag_s=self._lag_s(now_s, newest_s),
            faults=self.feed.faults,
            problems=problems,
            engine=self._score.state,
            failures_total=tuple(sorted(self._failures.total.items())),
            replay_ended=bool(getattr(self.feed, "ended", False)),  # only a replay has an end
            opened_total=tuple(sorted((view, count) for view, count in self._opened.items() if count)),
        )

    def _lag_s(self, now_s: float, newest_s: int | None) -> float:
        """The age of the newest data. If it is from after now, the clock was set back, and the step is its age."""
        if newest_s is None:
            return 0.0
        return abs(now_s - newest_s) if newest_s > now_s + self.settings.in_step_s else max(now_s - newest_s, 0.0)

    def _phase(self, now_s: float, newest_s: int | None) -> tuple[Phase, int | None]:
        is_old = newest_s is not None and not self._heard.is_current(newest_s, now_s, self.settings.stale_s)
        if is_old or "clock" in self._problems:
            return "stale", None
        if self._now.scored_total and self._now.scored is not None:
            return "watching", None
        if self._first_s is None or newest_s is None:
            return "warming-up", None
        return "warming-up", max(0, self._first_s + WINDOW_S - newest_s)

    def _model(self) -> ModelState | None:
        if self._handover is None:
            return None
        detector = self._handover.detector
        return ModelState(
            version=detector.version,
            name=detector.stored.name,
            origin="champion" if self._handover.taken else "bundled",
            threshold=detector.threshold,
            false_alarm_rate=detector.settings.false_alarm_rate,
            views=detector.views,
            since_s=self._since_s,
            refused=(self._handover.reason,) if self._handover.reason else (),
            refused_total=self._handover.refused,
        )
