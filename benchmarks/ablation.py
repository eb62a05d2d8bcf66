"""Remove one part of the alarm at a time: recorded and simulated faults -> what is found, named and false without it.

    python benchmarks/ablation.py zoo data/zoo                    recorded: both halves of the programs, separately
    python benchmarks/ablation.py hpas DATA/telemetry/hpas        recorded: both halves of the runs, separately
    python benchmarks/ablation.py simulated --hours 2 --seed 13   simulated: every anomaly

A part is a rule of the questions, a whole question, the peers view, or a group of channels. A rule is removed before
findings are held, and a channel before signals are measured, so what is left works as if the part had never been there.
A rule that never speaks on the data is listed and not tried. Events are counted as in `zoo.py`, `questions.py hpas` and
`questions.py faults`. A fault counts as named if an event has its cause or one that says the same (`NAMED`).
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import orjson
import torch

from clustertwin.core import files
from clustertwin.core.channels import Schema
from clustertwin.telemetry.campaign.zoo.zoo_data import load_zoo
from clustertwin.telemetry.detection.bundled import bundled
from clustertwin.telemetry.detection.events.tracker import Tracker
from clustertwin.telemetry.detection.forecast.memory_watch import MemoryWatch
from clustertwin.telemetry.detection.questions import assess as asking
from clustertwin.telemetry.detection.questions.candidate import Candidate
from clustertwin.telemetry.detection.questions.finding import Finding
from clustertwin.telemetry.detection.questions.question_memory import JobLabel, QuestionMemory
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import Moment
from clustertwin.telemetry.simulation.anomalies import available_anomalies
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate
from clustertwin.telemetry.studies.event_metrics import labelled_anomalies, labels_of, replay
from questions import GRACE_S, ONE_RUN, STARTED_S, FaultyRun, known_runs, live, read_hpas
from zoo import SAME, chosen_half, unlabelled

STRIDE_S, SIMULATED_STRIDE_S = 10, 15
Rule = tuple[str, str, str]  # question, cause, signal
#: Fault of HPAS or of the simulator -> the causes that name it.
NAMED: dict[str, tuple[str, ...]] = {
    "cpuoccupy": ("cpu-contention",),
    "cachecopy": ("cpu-contention",),
    "memleak": ("leak",),
    "bad-io": ("stalled-io",),
    "slow-io": ("stalled-io",),
    "hung-job": ("idle",),
    "swap-bursts": ("stall-bursts", "kernel-time"),
    "noisy-neighbour": ("cpu-contention", "straggler"),
    "straggler-x2": ("straggler",),
    "straggler-x1.5": ("straggler",),
    "memory-leak": ("leak",),
}
CHANNELS: dict[str, tuple[str, ...]] = {
    "CPU time of the cgroup": ("job_cpu", "job_system"),
    "CPU pressure": ("cpu_pressure", "job_cpu_pressure"),
    "I/O pressure": ("io_pressure", "job_io_pressure"),
    "memory pressure": ("memory_pressure", "job_memory_pressure"),
    "memory": ("memory_used", "job_memory"),
    "run queue": ("run_queue", "blocked_tasks"),
    "throttled time and steal": ("job_throttled", "steal"),
    "paging and OOM kills": ("swap_traffic", "major_faults", "job_major_faults", "job_oom_kills"),
    "page faults": ("job_page_faults",),
    "traffic": ("disk_traffic", "disk_busy", "network_traffic", "network_errors", "job_io_traffic"),
    "context switches": ("context_switches",),
}


@dataclass(frozen=True, slots=True)
class ImposedPhase:
    """A fault of a job: an event between `after_s` and `before_s` finds it."""

    job: str
    names: frozenset[str]
    onset_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Case:
    """Moments with their scores, what was imposed in them, and how an event is counted there."""

    moments: Sequence[tuple[Moment, Scores]]
    phases: tuple[ImposedPhase, ...]
    labels: Mapping[str, JobLabel]
    memory: Callable[[], QuestionMemory]
    started_s: float  # moments before this are the start of the program
    grace_s: float
    by_overlap: bool  # an event that is open when the fault begins finds it
    watched: bool  # whether forecasts of memory are asked for
    too_short: frozenset[str] = frozenset()  # jobs whose fault is too short to count: their events are not counted


@dataclass(frozen=True, slots=True)
class OpenedEvent:
    job: str
    opened_s: int
    last_s: int
    cause: str


@dataclass(frozen=True, slots=True)
class Variant:
    """The alarm without some part."""

    name: str
    without_rules: frozenset[Rule] = frozenset()
    without_question: str = ""
    without_channels: tuple[str, ...] = ()
    without_peers: bool = False

    def keeps(self, rule: Rule) -> bool:
        return rule not in self.without_rules and rule[0] != self.without_question


FULL = Variant("everything")


def rule_of(found: Candidate | Finding) -> Rule:
    """The rule of a candidate or of its finding. A deviating thread is one rule with two names."""
    signal = found.signal if isinstance(found, Candidate) else found.channel
    if found.cause == "leak" and signal in ("memory_used", "job_memory"):
        signal = "forecast"
    return found.question, "straggler" if signal == "apart" else found.cause, signal


@contextmanager
def only(variant: Variant) -> Iterator[None]:
    """Ask without the rules that a variant lacks."""

    def filtered(rules: Callable[..., list[Candidate]]) -> Callable[..., list[Candidate]]:
        return lambda *values: [each for each in rules(*values) if variant.keeps(rule_of(each))]

    with ExitStack() as stack:
        for name in ("harm_candidates", "change_candidates"):
            stack.enter_context(patch.object(asking, name, filtered(getattr(asking, name))))
        yield


def hidden(moment: Moment, names: Sequence[str]) -> Moment:
    """The moment without these channels of nodes and jobs."""
    if not names:
        return moment
    of_nodes, of_jobs = moment.node_channels, moment.job_channels
    return replace(
        moment,
        node_channels=of_nodes and replace(of_nodes, values=_unknown(of_nodes.schema, of_nodes.values, names)),
        job_channels=of_jobs and replace(of_jobs, values=_unknown(of_jobs.schema, of_jobs.values, names)),
    )


def _unknown(schema: Schema, values: Any, names: Sequence[str]) -> Any:
    columns = [i for i, name in enumerate(schema.names) if name in names]
    values = values.copy()
    values[..., columns] = np.nan
    return values


def without_peers(scores: Scores) -> Scores:
    surprise = scores.surprise.copy()
    surprise[:, [i for i, name in enumerate(scores.views) if name.startswith("peers")]] = np.nan
    return replace(scores, surprise=surprise)


def events_of(case: Case, variant: Variant) -> tuple[list[OpenedEvent], list[tuple[int, tuple[Finding, ...]]]]:
    """The events of a case, and the findings of each moment."""
    threshold, memory, tracker, watch = bundled().threshold, case.memory(), Tracker(), MemoryWatch()
    opened: dict[str, int] = {}
    last: dict[str, OpenedEvent] = {}
    findings = []
    with only(variant):
        for whole, scores in case.moments:
            moment = hidden(whole, variant.without_channels)
            scores = without_peers(scores) if variant.without_peers else scores
            soon = watch.forecast(moment) if case.watched and variant.keeps(("harm", "leak", "forecast")) else ()
            found = asking.assess(moment, scores, memory, threshold, case.labels, soon).findings
            findings.append((moment.end_s, found))
            changes = tracker.update(moment, scores, threshold, findings=found)
            for event in [*(change.event for change in changes), *tracker.open]:
                opened.setdefault(event.id, moment.end_s)
                last[event.id] = OpenedEvent(event.job, opened[event.id], event.seen_s, event.cause)
    return list(last.values()), findings


@dataclass(frozen=True, slots=True)
class Outcome:
    faults: int = 0
    found: int = 0
    named: int = 0
    false: int = 0
    delays_s: tuple[float, ...] = ()

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(
            self.faults + other.faults,
            self.found + other.found,
            self.named + other.named,
            self.false + other.false,
            self.delays_s + other.delays_s,
        )

    @property
    def delay_s(self) -> float | None:
        return median(self.delays_s) if self.delays_s else None


def outcome_of(case: Case, events: Sequence[OpenedEvent]) -> Outcome:
    def finds(event: OpenedEvent, phase: ImposedPhase) -> bool:
        in_time = event.opened_s <= phase.end_s + case.grace_s
        since = event.last_s > phase.onset_s if case.by_overlap else event.opened_s > phase.onset_s
        return event.job == phase.job and in_time and since

    hits = [[event for event in events if finds(event, phase)] for phase in case.phases]
    # After a fault, a job may be unlike itself: such an event is neither true nor false, except where phases overlap.
    onset_s: dict[str, float] = {}
    for phase in case.phases:
        onset_s[phase.job] = min(phase.onset_s, onset_s.get(phase.job, np.inf))
    false = [
        event
        for event in events
        if event.job not in case.too_short
        and not any(finds(event, phase) for phase in case.phases)
        and (case.by_overlap or event.opened_s <= onset_s.get(event.job, np.inf))
    ]
    delays = tuple(
        max(min(event.opened_s for event in found) - phase.onset_s, 0.0)
        for found, phase in zip(hits, case.phases, strict=True)
        if found
    )
    named = sum(any(e.cause in phase.names for e in found) for found, phase in zip(hits, case.phases, strict=True))
    return Outcome(len(case.phases), len(delays), named, len(false), delays)


def questions_of(case: Case, findings: Sequence[tuple[int, tuple[Finding, ...]]]) -> Counter[str]:
    """Moments with an answer to each question, before a fault and in it."""
    counts: Counter[str] = Counter()
    for end_s, found in findings:
        if end_s < case.started_s:
            continue
        inside = any(phase.onset_s < end_s <= phase.end_s for phase in case.phases)
        before = not case.phases or end_s <= min(phase.onset_s for phase in case.phases)
        if not inside and not before:
            continue
        where = "fault" if inside else "healthy"
        counts[f"{where} moments"] += 1
        counts.update({f"{where} {each.question}" for each in found if each.question == "new" or each.opens_event})
    return counts


def zoo_cases(data: Path | None, half: str) -> Iterator[Case]:
    for run in chosen_half(list(load_zoo(data)), half):
        trace = unlabelled(run.trace)
        phases = tuple(
            ImposedPhase(
                trace.spans[0].job, frozenset({each.cause, *SAME.get(each.cause, ())}), each.onset_s, each.end_s
            )
            for each in run.phases
        )
        moments = list(replay(bundled(), [trace], STRIDE_S))
        started_s = trace.start_s + STARTED_S
        yield Case(moments, phases, {}, QuestionMemory, started_s, STRIDE_S, by_overlap=False, watched=True)


def hpas_cases(data: Path, half: str) -> Iterator[Case]:
    runs = [read_hpas(path) for path in sorted(data.glob("*.npz"))]
    tables = known_runs(runs)
    faulty = [run for run in runs if run.faults]

    def memory() -> QuestionMemory:
        return QuestionMemory(ONE_RUN, programs=tables)

    for run in faulty[0::2] if half == "select" else faulty[1::2]:
        yield hpas_case(run, memory)


def hpas_case(run: FaultyRun, memory: Callable[[], QuestionMemory]) -> Case:
    span = run.trace.spans[0]
    phases = tuple(
        ImposedPhase(span.job, frozenset(NAMED.get(fault.kind, (fault.kind,))), fault.start_s, fault.end_s)
        for fault in run.faults
    )
    moments = [(moment, bundled().score(moment)) for moment in live(run.trace)]
    labels = {span.job: JobLabel(span.name)}
    return Case(moments, phases, labels, memory, STARTED_S, GRACE_S, by_overlap=True, watched=False)


def simulated_cases(hours: float, seed: int) -> Iterator[Case]:
    signatures = read_signatures()
    settings = ClusterSettings(hours=hours, anomalies=available_anomalies(signatures), anomaly_ratio=0.4)
    traces = simulate(settings, signatures, seed)
    phases = tuple(
        ImposedPhase(each.job, frozenset(NAMED.get(each.anomaly, (each.anomaly,))), each.onset_s, each.end_s)
        for each in labelled_anomalies(traces)
    )
    moments = list(replay(bundled(), traces, SIMULATED_STRIDE_S))
    struck = {span.job for trace in traces for span in trace.spans if span.anomaly}
    yield Case(
        moments,
        phases,
        labels_of(traces),
        QuestionMemory,
        np.inf,
        60.0,
        by_overlap=False,
        watched=False,
        too_short=frozenset(struck - {phase.job for phase in phases}),
    )


def known_channels(case: Case) -> set[str]:
    """The channels of nodes and jobs that have a value in some moment."""
    known: set[str] = set()
    for moment, _ in case.moments:
        for channels in (moment.node_channels, moment.job_channels):
            if channels is not None:
                columns = np.flatnonzero(~np.isnan(channels.values).all((0, 1)))
                known.update(channels.schema.names[i] for i in columns)
    return known


def variants_of(spoken: Counter[Rule], known: set[str]) -> list[Variant]:
    """Without each question, the peers view, each rule that spoke, and each group of channels that the data have."""
    rules = [Variant(f"rule {q}: {cause} ({signal})", frozenset({(q, cause, signal)})) for q, cause, signal in spoken]
    rules.sort(key=lambda variant: variant.name)
    channels = [
        Variant(f"channels: {name}", without_channels=names) for name, names in CHANNELS.items() if known & set(names)
    ]
    every = tuple(name for names in CHANNELS.values() for name in names)
    return [
        *(Variant(f"question: {question}", without_question=question) for question in ("harm", "change")),
        Variant("view: peers", without_peers=True),
        *rules,
        *channels,
        Variant("channels: all of nodes and cgroups", without_channels=every),
    ]


def all_rules() -> set[Rule]:
    """Every rule that can open an event, from the code that makes the candidates."""
    seen: set[Rule] = {("harm", "leak", "forecast")}

    def noting(rules: Callable[..., list[Candidate]]) -> Callable[..., list[Candidate]]:
        def call(*values: Any) -> list[Candidate]:
            made = rules(*values)
            seen.update(rule_of(each) for each in made)
            return made

        return call

    with ExitStack() as stack:
        for name in ("harm_candidates", "change_candidates"):
            stack.enter_context(patch.object(asking, name, noting(getattr(asking, name))))
        trace = simulate(ClusterSettings(hours=0.1), read_signatures(), 0)[0]
        for moment, scores in replay(bundled(), [trace], SIMULATED_STRIDE_S):
            asking.assess(moment, scores, QuestionMemory(), bundled().threshold)
    return {rule for rule in seen if asking.FINDING_CAUSES[rule[1]].opens_event}


def ablate(cases: Iterator[Case]) -> dict[str, Any]:
    """The outcome of every variant, the shares of the questions, and how often each rule spoke."""
    outcomes: dict[str, Outcome] = {}
    changed: dict[str, list[str]] = {}
    questions: Counter[str] = Counter()
    total: Counter[Rule] = Counter()
    full = Outcome()
    for case in cases:
        events, findings = events_of(case, FULL)
        spoken = Counter(rule_of(each) for _, found in findings for each in found if each.opens_event)
        total += spoken
        mine = outcome_of(case, events)
        full += mine
        questions += questions_of(case, findings)
        for variant in variants_of(spoken, known_channels(case)):
            got = outcome_of(case, events_of(case, variant)[0])
            # A variant that was not tried on a case is as the full one there: its rule never spoke.
            before = outcomes.get(variant.name, Outcome())
            outcomes[variant.name] = before + _difference(got, mine)
            if got != mine:
                changed.setdefault(variant.name, []).append(case.phases[0].job if case.phases else "")
    return {
        "everything": asdict(full) | {"median_delay_s": full.delay_s},
        "without": {name: asdict(outcome) for name, outcome in outcomes.items()},
        "changed_runs": {name: len(jobs) for name, jobs in changed.items()},
        "questions": dict(questions),
        "spoken": {" / ".join(rule): count for rule, count in sorted(total.items())},
        "silent": sorted(" / ".join(rule) for rule in all_rules() - set(total)),
    }


def _difference(got: Outcome, full: Outcome) -> Outcome:
    """What changes; the delays are those that grew or shrank, in seconds."""
    return Outcome(0, got.found - full.found, got.named - full.named, got.false - full.false, _later(got, full))


def _later(got: Outcome, full: Outcome) -> tuple[float, ...]:
    if len(got.delays_s) != len(full.delays_s):
        return ()
    return tuple(a - b for a, b in zip(got.delays_s, full.delays_s, strict=True) if a != b)


def print_table(title: str, document: Mapping[str, Any]) -> None:
    full = document["everything"]
    delay = "" if full["median_delay_s"] is None else f"{full['median_delay_s']:.0f} s"
    print(
        f"\n{title}: {full['found']} of {full['faults']} found, {full['named']} named, {full['false']} false, {delay}"
    )
    print("| without | found | named | false | delays that change |")
    print("|---|---|---|---|---|")
    same = []
    for name, row in document["without"].items():
        if not any((row["found"], row["named"], row["false"], row["delays_s"])):
            same.append(name)
            continue
        later = [round(value) for value in row["delays_s"]]
        text = f"{len(later)}, median {median(later):+.0f} s" if later else ""
        print(f"| {name} | {row['found']:+d} | {row['named']:+d} | {row['false']:+d} | {text} |")
    print("spoke, and nothing changes without it:", "; ".join(same) or "none")
    print("never spoke:", "; ".join(document["silent"]) or "none")
    counts = document["questions"]
    for where in ("healthy", "fault"):
        moments = counts.get(f"{where} moments", 0)
        if moments:
            shares = {q: f"{counts.get(f'{where} {q}', 0) / moments:.3f}" for q in ("harm", "change", "new")}
            print(f"moments, {where}: {moments}; with a finding: {shares}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("zoo", "hpas", "simulated"))
    parser.add_argument("data", type=Path, nargs="?", help="the recordings; for the zoo, default: the data package")
    parser.add_argument("--half", choices=("select", "report", "both"), default="both")
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--json", type=Path, help="write the rows to this file too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    halves = ("select", "report") if options.half == "both" else (options.half,)
    documents = {}
    if options.what == "simulated":
        documents["simulated"] = ablate(simulated_cases(options.hours, options.seed))
    elif options.what == "zoo":
        documents = {f"zoo, {half}": ablate(zoo_cases(options.data, half)) for half in halves}
    elif options.data is None:
        parser.error("hpas needs the directory of the recordings")
    else:
        documents = {f"HPAS, {half}": ablate(hpas_cases(options.data, half)) for half in halves}
    for title, document in documents.items():
        print_table(title, document)
    if options.json:
        files.write(options.json, orjson.dumps(documents, option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    main()
