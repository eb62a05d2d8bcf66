"""From an open event to evidence, outcomes and a proposal: one turn at a time, the work of a thread beside the loop.

Nothing is asked of a node while no event is open and no job is suspected to stand still. At most one job is looked at
in a turn, and each job at most every `every_s`; a suspect much less often (`suspect_looks`). Without a policy the hand
takes evidence and proposes nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from clustertwin.core.durations import DAY_S
from clustertwin.core.errors import SettingsError, TwinError
from clustertwin.core.foreign_files import expanded
from clustertwin.core.job_health import ClusterHealth, JobHealth, KnownHealth
from clustertwin.service.act.action_journal import ActionPlan, ActionRecord, Journal
from clustertwin.service.act.counterfactual import outcomes_of
from clustertwin.service.act.decision import decide
from clustertwin.service.act.evidence_sources import TakeEvidence
from clustertwin.service.act.evidence_store import LONGEST_GAP_S, EvidenceStore, lasting
from clustertwin.service.act.execution import Deliver, Executor
from clustertwin.service.act.hand_settings import HandSettings
from clustertwin.service.act.policy import ActionPolicy, Rule, check_names, read_policy
from clustertwin.service.act.savings import SavingsMeter, future_overruns
from clustertwin.service.act.slurm_commands import JobFacts, RunCommand, partitions, read_facts, run_command
from clustertwin.service.act.suspect_looks import SuspectLooks
from clustertwin.service.live.beside.side_work import repeat
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.store.event_store import Store
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.questions.finding import CONFIRMED, Finding
from clustertwin.telemetry.diagnosis.evidence import JobEvidence, JobFinding
from clustertwin.telemetry.diagnosis.odd_rank import KINDS
from clustertwin.workload.simulator.forecast.action_outcomes import ActionSettings

#: The clock was set if it differs by more than this from the time that has passed since the last turn.
STEP_S = 5.0


class JobEnded(SettingsError):
    """The job of an event does not run any more, which is no problem of the site."""


class Hand:
    def __init__(
        self,
        home: Path,
        store: Store,
        settings: HandSettings,
        take: TakeEvidence,
        run: RunCommand = run_command,
        deliver: Deliver | None = None,
    ) -> None:
        self.store, self.settings = store, settings
        self.journal = Journal(store.database)
        self.evidence = EvidenceStore(store.database, max(LONGEST_GAP_S, 3 * settings.every_s))
        self.executor = Executor(home, self.journal, run, sleep=self._sleep, deliver=deliver)
        self.meter = SavingsMeter(self.journal, run)
        self.problem = ""  # why the last turn did less than it should, in one sentence
        self.alive_s = time.monotonic()  # the last turn, or the last second of a wait
        self._take, self._run, self._deliver = take, run, deliver
        self._looked_s: dict[str, float] = {}
        self._health: dict[str, JobHealth] = {}  # event -> what its evidence says of its job
        self._unfit: frozenset[str] = frozenset()
        self._no_outcomes = ""  # why the last look has no outcomes
        self._clock_ahead_s: float | None = None  # of the wall clock, before the monotonic one
        self.suspects = SuspectLooks()
        self._told: set[str] = set()  # events that have the evidence which opened them

    def turn(self, open_events: Iterable[Event], now_s: float, suspects: Sequence[Finding] = ()) -> None:
        """Look at one job, if one is due, and act as the policy allows. A problem stays until a look succeeds.

        `suspects` are the jobs that may stand still. Open events come first.
        """
        events = list(open_events)
        try:
            self.journal.expire(now_s)
            self._suspend_after_errors(now_s)
            self._keep_open(events)
            self._hand_over(events)
            if not events:
                self._no_outcomes = ""
            event = self._due(events, now_s)
            suspect = self.suspects.due(suspects if self.settings.suspects else (), events, now_s)
            if event is not None:
                self._looked_s[event.id] = now_s
                with suppress(JobEnded):
                    self.look_at(event, now_s)
            elif suspect is not None:
                self.suspects.begin(suspect.job, now_s)
                nodes = [finding.node for finding in suspects if finding.job == suspect.job]
                with suppress(JobEnded):
                    self.look_at_suspect(suspect.job, nodes, now_s)
            self.meter.turn(now_s)
            if event is not None or suspect is not None or not events:
                self.problem = self._no_outcomes or self.meter.problem
        except TwinError as error:
            self.problem = str(error)

    def look_at(self, event: Event, now_s: float) -> ActionRecord | None:
        """Take evidence of the job of an event, and propose or do what a rule allows."""
        facts = self._facts(event.job, event.nodes, f"event {event.id}")
        return self.judge(event, facts, self._evidence(facts), now_s)

    def look_at_suspect(self, job: str, nodes: Sequence[str], now_s: float) -> None:
        """Take evidence of a job without an event. Two looks that claim the same hang make it a hanging job."""
        from clustertwin.telemetry.diagnosis.odd_rank import find

        evidence = self._evidence(self._facts(job, nodes, f"the suspicion of job {job}"))
        self.suspects.judge(job, evidence, find(evidence), now_s)

    def _evidence(self, facts: JobFacts) -> JobEvidence:
        return self._take(facts.id_on_nodes or facts.job, facts.uid, facts.nodes)

    def _hand_over(self, events: list[Event]) -> None:
        """Store the evidence that confirmed a suspicion with the event that it opened."""
        self._told &= {event.id for event in events}
        for event in events:
            if event.cause == CONFIRMED and event.id not in self._told:
                for evidence in self.suspects.evidence_of(event.job):
                    self.evidence.add(event.id, evidence)
                self._told.add(event.id)

    def judge(self, event: Event, facts: JobFacts, evidence: JobEvidence, now_s: float) -> ActionRecord | None:
        """Store the evidence with its outcomes, and ask the policy."""
        from clustertwin.telemetry.diagnosis.odd_rank import find

        finding = find(evidence)
        outcomes: tuple[dict[str, Any], ...] = ()
        self._no_outcomes = ""
        try:
            settings = ActionSettings(
                overruns_s=future_overruns(self.meter.overruns_s(now_s)),
                releases_s=self._releases(),
                known=self.known_health(event),
            )
            outcomes = outcomes_of(facts.target, finding, _path(self.settings.past), self._run, settings)
        except SettingsError:
            pass  # not in the queue: the job has just ended, or is a part of a heterogeneous job
        except TwinError as error:
            self._no_outcomes = f"no outcomes of job {facts.job}: {error}"
        self.evidence.add(event.id, evidence, outcomes)
        self._health[event.id] = JobHealth(facts.target, finding.hang, finding.sure)
        self._withdraw(event, finding, now_s)
        latest = lasting(self.evidence.of(event.id))
        assert latest is not None
        policy = self.policy()
        since_s = now_s - DAY_S
        used = {rule.name: self.journal.count_since(rule.name, since_s) for rule in policy.rules}
        decision = decide(policy, *latest, facts, used, self.journal.suspended_rules())
        if decision.rule is None:
            return None
        return self._propose(event, decision.rule, finding, facts, outcomes, now_s)

    def _releases(self) -> tuple[float, ...]:
        """When a cancelled job ends: at once at the signal, at the end of the grace, or between."""
        rules = read_policy(_path(self.settings.policy)).rules
        grace_s = max(
            (rule.grace_s for rule in rules if rule.action == "cancel" and rule.signal != "KILL"), default=2.0
        )
        return tuple(grace_s * i / 10 for i in range(11))

    def known_health(self, event: Event) -> ClusterHealth:
        """What the evidence of the other open events says of their jobs, and the nodes with a fault of their own."""
        if not self.settings.listen:
            return ClusterHealth()
        return ClusterHealth(self.hanging_jobs(without=event.id), self._unfit)

    def hanging_jobs(self, without: str = "") -> KnownHealth:
        """The jobs of open events that hang by their evidence."""
        if not self.settings.listen:
            return {}
        return {health.job: health for id, health in self._health.items() if id != without and health.hangs}

    def _keep_open(self, events: list[Event]) -> None:
        """Forget the jobs of events that have closed. A node whose event has no job is unfit."""
        now_open = {event.id for event in events}
        self._health = {id: health for id, health in self._health.items() if id in now_open}
        self._looked_s = {id: at_s for id, at_s in self._looked_s.items() if id in now_open}
        self._unfit = frozenset(node for event in events if not event.jobs for node in event.nodes)

    def policy(self) -> ActionPolicy:
        """The policy as it is on disk now. A policy that is not valid raises, and nothing is done."""
        policy = read_policy(_path(self.settings.policy))
        if any(rule.partitions for rule in policy.rules):
            check_names(policy, partitions(self._run), self.settings.policy)
        return policy

    def _propose(
        self,
        event: Event,
        rule: Rule,
        finding: JobFinding,
        facts: JobFacts,
        outcomes: tuple[dict[str, Any], ...],
        now_s: float,
    ) -> ActionRecord | None:
        saved = next((o["saved_node_hours"] for o in outcomes if o["choice"] == rule.action), None)
        if rule.mode == "advise":  # advice is checked against the time that the job really goes on
            saved = next((o["saved_node_hours"] for o in outcomes if o["choice"] == "cancel"), saved)
        promised = saved or {"middle": 0.0, "low": 0.0, "high": 0.0}
        plan = ActionPlan(
            facts=facts,
            cause=finding.kind,
            sentence=finding.sentence,
            sure=finding.sure,
            mode=rule.mode,
            signal=rule.signal,
            grace_s=rule.grace_s,
            promised_node_hours=promised["middle"],
            promised_low=promised["low"],
            promised_high=promised["high"],
            outcomes=outcomes,
            reserve_s=rule.reserve_s,
        )
        action = self.journal.propose(event.id, rule.action, rule.name, plan, now_s)
        if action is None:
            return None
        if rule.mode == "auto":
            self.journal.approve(action.id, self.journal.code(action), f"rule {rule.name}", now_s)
            action = self.executor.execute(action.id)
        if self._deliver is not None and rule.action != "notify":
            self._deliver(action)
        return action

    def _withdraw(self, event: Event, finding: JobFinding, now_s: float) -> None:
        """Close proposals whose finding has changed: a page that still shows them is stale."""
        for action in self.journal.actions(("proposed",), event=event.id):
            if action.plan.cause != finding.kind:
                # Not its sentence, which is evidence: whoever may read sees the audit log.
                self.journal.withdraw(action.id, f"the finding has changed: {KINDS[finding.kind]}", now_s)

    def _due(self, events: Iterable[Event], now_s: float) -> Event | None:
        """The open event of one job that was not looked at for the longest time."""
        due = [
            event
            for event in events
            if event.job and not 0 <= now_s - self._looked_s.get(event.id, 0.0) < self.settings.every_s
        ]
        return min(due, key=lambda event: self._looked_s.get(event.id, 0.0), default=None)

    def _facts(self, job: str, nodes: Sequence[str], what: str) -> JobFacts:
        """What Slurm knows of the job. An error if the job does not run on the nodes of the event or the suspicion."""
        facts = read_facts(job, self._run)
        if facts.state != "RUNNING":
            raise JobEnded(f"job {job} is {facts.state}: nothing is done")
        if not set(nodes) & set(facts.nodes):
            raise SettingsError(
                f"{what} is on {', '.join(nodes[:3])}, and Slurm runs job {job} elsewhere: nothing is done"
            )
        return facts

    def _suspend_after_errors(self, now_s: float) -> None:
        """A rule that acted on an event which a person then dismissed is suspended."""
        suspended = self.journal.suspended_rules()
        for action in self.journal.actions(("done", "proposed", "advised"), limit=500):
            if action.rule in suspended:
                continue
            with suppress(TwinError):
                case = self.store.event(action.event)
                if case.is_settled:
                    why = f"event {action.event} was {case.verdict} after action {action.id}"
                    self.journal.suspend_rule(action.rule, case.who, now_s, why)
                    suspended[action.rule] = why
                    if action.state == "proposed":
                        self.journal.dismiss(action.id, case.who, now_s, why)

    def check_clock(self, wall_s: float, monotonic_s: float) -> None:
        """Begin the findings anew if the wall clock was set since the last turn: it tells how long a finding lasts."""
        before_s, self._clock_ahead_s = self._clock_ahead_s, wall_s - monotonic_s
        if before_s is not None and abs(self._clock_ahead_s - before_s) > STEP_S:
            self.evidence.begin_anew()

    def _sleep(self, seconds: float) -> None:
        """The grace of a cancellation: a wait that is no standstill."""
        self.alive_s = time.monotonic()
        time.sleep(seconds)


def _path(text: str) -> Path | None:
    return expanded(text) if text else None


def watch(hand: Hand, state: ServiceState, stop: threading.Event, check_s: float = 5.0) -> None:
    """Take turns until `stop` is set; the work of a thread beside the loop."""
    state.hand_age_s = lambda: time.monotonic() - hand.alive_s

    def turn() -> None:
        hand.alive_s = time.monotonic()
        try:
            hand.check_clock(time.time(), time.monotonic())
            snapshot = state.snapshot
            hand.turn(snapshot.events, time.time(), snapshot.suspects)
            state.hanging_s = hand.suspects.hanging_s
            hand.executor.recover()  # what a page has approved
        except TwinError as error:
            hand.problem = str(error)
        except Exception as error:  # whatever Slurm or a helper answers, the next turn tries again
            hand.problem = f"unexpected {type(error).__name__}; nothing is done"
        state.hand_problem, state.known_health = hand.problem, hand.hanging_jobs()

    with suppress(Exception):  # what fails here fails again in a turn, which names it
        hand.executor.recover()
    repeat(turn, stop, check_s)
    state.hand_age_s = lambda: 0.0
