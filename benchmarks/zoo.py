"""Measure detection on recorded runs of real programs: raw runs -> false events, faults found, delays; with the rivals.

    python benchmarks/zoo.py data/zoo                    programs at odd places of the table: the report
    python benchmarks/zoo.py data/zoo --half select      programs at even places, on which settings were chosen
    python benchmarks/zoo.py data/zoo --half blind       programs recorded after the settings were fixed
    python benchmarks/zoo.py data/zoo --half two-cpus    runs on two CPUs on which rules were changed
    python benchmarks/zoo.py data/zoo --half two-cpus-blind    runs on two CPUs that were recorded after that
    python benchmarks/zoo.py data/zoo --half newest      six more programs, recorded later
    python benchmarks/zoo.py data/zoo --half looks       programs recorded last, with looks at their processes
    python benchmarks/zoo.py data/zoo --half all --programs elk meep    these programs; the rivals learn from all
    python benchmarks/zoo.py data/zoo --cgroup v1        without what cgroup v1 does not count: pressure and I/O of jobs
    python benchmarks/zoo.py data/zoo --json zoo.json    the same rows for a program

Every run is a first encounter. Our questions know nothing about the program, and nothing is kept from run to run. A
rival is trained on the healthy phases of all other programs. Its threshold is the score that .2 % of their healthy
moments exceed, each scored by a model that was not trained on its program. All methods see the same signals of the job,
over 30 s and 100 s, every 10 s. The rivals also see how far each signal is from its median in the job's own past; ours
also sees the scores of the bundled detector.

The healthy phase is what comes before the first fault. An event that opens in it is false. The second fault of a run is
judged as if it were the first: an event that is open already would hide it. So the seconds from the first fault to the
second are left out. A fault is found if an event opens between its onset and its end. ROC-AUC sets the moments from
60 s after an onset against all healthy ones.

A run with recorded looks at its processes is judged with them, as in the service: two looks that claim the same hang
confirm a suspicion (`zoo_looks.py`).
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import orjson
import torch
from numpy.typing import NDArray

from clustertwin.core import files
from clustertwin.core.traces import Trace
from clustertwin.telemetry.campaign.zoo.program_table import PROGRAMS
from clustertwin.telemetry.campaign.zoo.zoo_data import FaultPhase, ZooRun, load_zoo
from clustertwin.telemetry.detection.bundled import bundled
from clustertwin.telemetry.detection.events.tracker import Tracker
from clustertwin.telemetry.detection.forecast.memory_watch import MemoryWatch
from clustertwin.telemetry.detection.questions.assess import assess
from clustertwin.telemetry.detection.questions.job_parts import SIGNALS, measure_signals, parts_of
from clustertwin.telemetry.detection.questions.no_progress import confirm, suspects
from clustertwin.telemetry.detection.questions.question_memory import QuestionMemory
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import Moment
from clustertwin.telemetry.studies.event_metrics import labels_of, replay
from clustertwin.telemetry.studies.window_metrics import roc_auc
from questions import RIVALS, persistent_events
from zoo_looks import ReplayedLooks, claims_of, cost_of, moved

Array = NDArray[np.float64]
Fit = Callable[[Array, int], Callable[[Array], Array]]
OURS = "clustertwin"
STRIDE_S = 10
STARTED_S = 90  # moments before this are the start of a program
FULL_EFFECT_S = 60  # from the onset, for ROC-AUC
ABOVE = 0.002  # part of the healthy moments of other programs above a rival's threshold
FOLDS = 4
#: Cause that was imposed -> others that say the same. A job of one CPU has no rank to compare with: it works less, and
#: one whose only process is stopped is idle.
SAME = {"straggler": ("idle", "hung-rank"), "idle": ("hung-rank",), "swapping": ("memory-pressure",)}


#: The first programs of the table were recorded while settings were chosen; the others afterwards.
FIRST_RECORDED = 20
#: The runs on two CPUs on which rules were changed: those for stopped ranks and misbound jobs on the first three, the
#: smallest loss of work that matters on all.
FIRST_ON_TWO = ("cp2k", "espresso", "lammps", "openfoam", "gpaw", "nwchem", "R", "master-worker")
#: Recorded later, after the rules by which they are judged in docs/results-questions.md.
NEWEST = ("bowtie2", "numpy", "pbzip2", "blastp", "sysbench", "sqlite")
#: From this place of the table on, programs on one CPU were recorded with looks, after those rules.
FIRST_WITH_LOOKS = 41
SPINNING = "spinning"
_NOT_IN_V1 = ("job_cpu_pressure", "job_memory_pressure", "job_io_pressure", "job_io_traffic")


@dataclass(frozen=True, slots=True)
class Opened:
    """An event: when it opened, when it was last seen, and the cause it names."""

    opened_s: int
    last_s: int
    cause: str


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """A run as one method judged it."""

    run: ZooRun
    end_s: NDArray[np.int64]  # (moment,)
    score: Array  # (moment,) higher is stranger
    alarm: NDArray[np.bool_]  # (moment,)
    events: tuple[Opened, ...]
    questions: Counter[str] = field(default_factory=Counter)  # question -> healthy moments with such a finding
    suspected_s: tuple[int, ...] = ()  # moments in which ours suspects that the job stands still; opens no event

    @property
    def onset_s(self) -> float:
        return self.run.phases[0].onset_s if self.run.phases else float(self.run.trace.end_s)

    @property
    def is_first(self) -> bool:
        """Whether this is the first fault of a recorded run, or its only one: its healthy phase counts once."""
        imposed = self.run.raw.labels["imposed"]
        return not imposed or not self.run.phases or imposed[0]["fault"] == self.run.phases[0].fault

    @property
    def healthy(self) -> NDArray[np.bool_]:
        """(moment,) of the healthy phase, after the start of the program."""
        inside = (self.end_s <= self.onset_s) & (self.end_s >= self.run.trace.start_s + STARTED_S)
        return np.asarray(inside & self.is_first)

    @property
    def false(self) -> list[Opened]:
        return [event for event in self.events if event.opened_s <= self.onset_s and self.is_first]

    def suspected(self, phase: FaultPhase | None = None) -> bool:
        """Whether the job was suspected to stand still: in a fault, or before the first one."""
        begin_s, end_s = (phase.onset_s, phase.end_s) if phase else (0.0, self.onset_s)
        return any(begin_s < at_s <= end_s for at_s in self.suspected_s)

    def hits(self, phase: FaultPhase) -> list[Opened]:
        """The events that opened during a fault, the first one first."""
        inside = [event for event in self.events if phase.onset_s < event.opened_s <= phase.end_s + STRIDE_S]
        return sorted(inside, key=lambda event: event.opened_s)

    def names(self, phase: FaultPhase) -> bool:
        """Whether one of them names the cause that was imposed."""
        right = {phase.cause, *SAME.get(phase.cause, ())}
        return any(event.cause in right for event in self.hits(phase))


@dataclass(frozen=True, slots=True)
class Seen:
    """A moment of a run, and the signals of its job over 30 s and 100 s."""

    moment: Moment
    scores: Scores
    signals: Array


def unlabelled(trace: Trace) -> Trace:
    """One span for the whole job: the spans of a recording are cut where a fault begins."""
    first, last = trace.spans[0], trace.spans[-1]
    return replace(trace, spans=(replace(first, end_s=last.end_s, anomaly="", onset_s=None),))


def one_fault_each(run: ZooRun) -> list[ZooRun]:
    """The healthy phase followed by the first fault, by the second fault, …"""
    if len(run.phases) <= 1:
        return [run]
    return [_with_one_fault(run, phase) for phase in run.phases]


def _with_one_fault(run: ZooRun, phase: FaultPhase) -> ZooRun:
    trace, first_s = run.trace, run.phases[0].onset_s
    left_out_s = int(phase.onset_s) - int(first_s)
    second = np.arange(trace.start_s, trace.end_s)
    kept = (second < int(first_s)) | (second >= int(phase.onset_s)) & (second < phase.end_s + STRIDE_S)
    channels = {
        "node_channels": trace.node_channels
        and replace(trace.node_channels, values=trace.node_channels.values[..., kept, :]),
        "job_channels": trace.job_channels
        and replace(trace.job_channels, values=trace.job_channels.values[..., kept, :]),
    }
    end_s = trace.start_s + int(kept.sum())
    spans = (replace(unlabelled(trace).spans[0], end_s=end_s),)
    values, valid = trace.values[:, kept], trace.valid[:, kept]
    of_fault = replace(phase, onset_s=phase.onset_s - left_out_s, end_s=phase.end_s - left_out_s)
    looks = moved(run.looks, int(first_s), int(phase.onset_s), left_out_s)
    trace = replace(trace, values=values, valid=valid, spans=spans, **channels)
    return replace(run, trace=trace, phases=(of_fault,), looks=looks)


def as_cgroup_v1(run: ZooRun) -> ZooRun:
    """The run without the channels of jobs that cgroup v1 lacks."""
    channels = run.trace.job_channels
    if channels is None:
        return run
    values = channels.values.copy()
    values[..., [channels.schema.index(name) for name in _NOT_IN_V1]] = np.nan
    return replace(run, trace=replace(run.trace, job_channels=replace(channels, values=values)))


def moments_of(run: ZooRun) -> Iterator[Seen]:
    """The moments that the live service would have seen."""
    for moment, scores in replay(bundled(), [unlabelled(run.trace)], STRIDE_S):
        parts = parts_of(moment)
        held = next(i for i, job in enumerate(parts.jobs) if job)
        windows = [measure_signals(moment, parts, slice(-length_s, None))[held] for length_s in (30, 100)]
        yield Seen(moment, scores, np.concatenate(windows).astype(np.float64))


def judge_by_questions(run: ZooRun) -> tuple[JudgedRun, Array]:
    """The live path, and the signals of each moment for the rivals."""
    threshold, labels = bundled().threshold, labels_of([run.trace])
    memory, tracker, watch, looks = QuestionMemory(), Tracker(), MemoryWatch(), ReplayedLooks(run.looks)
    end_s, ratio, rows, questions = [], [], [], Counter[str]()
    suspected_s: list[int] = []
    opened: dict[str, int] = {}
    last: dict[str, Opened] = {}
    onset_s = run.phases[0].onset_s if run.phases else np.inf
    for seen in moments_of(run):
        moment, scores = seen.moment, seen.scores
        assessed = assess(moment, scores, memory, threshold, labels, watch.forecast(moment))
        end_s.append(moment.end_s)
        ratio.append(float(assessed.ratio.max(initial=0.0)))
        rows.append(seen.signals)
        suspected_s += [moment.end_s] * bool(suspects(assessed.findings))
        if run.trace.start_s + STARTED_S <= moment.end_s <= onset_s:
            questions.update({finding.question for finding in assessed.findings if finding.question == "new"})
            questions.update({finding.question for finding in assessed.findings if finding.opens_event})
            questions["score"] += bool(np.nanmax(scores.score, initial=0.0) > threshold)
        findings = assessed.findings + confirm(assessed.findings, looks.hanging_s(moment.end_s))
        for change in tracker.update(moment, scores, threshold, findings=findings):
            opened.setdefault(change.event.id, moment.end_s)
        looks.remember(suspects(assessed.findings), tracker.open, moment.end_s)
        for event in tracker.open:
            last[event.id] = Opened(opened[event.id], event.seen_s, event.cause)
    score, signals = np.array(ratio), np.array(rows)
    judged = JudgedRun(run, np.array(end_s), score, score >= 1, tuple(last.values()), questions, tuple(suspected_s))
    return judged, np.concatenate([signals, _from_own_past(np.nan_to_num(signals[:, : len(SIGNALS)]))], axis=1)


def _from_own_past(signals: Array) -> Array:
    """(moment, signal) how far a signal is from its median in the job's past; the last 30 s are not past yet."""
    first, lag = STARTED_S // STRIDE_S - 1, 30 // STRIDE_S
    out = np.zeros_like(signals)
    for i in range(first + lag, len(signals)):
        out[i] = signals[i] - np.median(signals[first : i - lag + 1], axis=0)
    return out


def judge_by_rival(fit: Fit, ours: Sequence[JudgedRun], rows: Sequence[Array]) -> list[JudgedRun]:
    """Leave one program out at a time."""
    out: dict[int, JudgedRun] = {}
    for program in sorted({judged.run.program for judged in ours}):
        others = [i for i, judged in enumerate(ours) if judged.run.program != program]
        limit = _limit(fit, [ours[i] for i in others], [rows[i] for i in others])
        score = _fitted(fit, _healthy_rows([ours[i] for i in others], [rows[i] for i in others]))
        for i, judged in enumerate(ours):
            if judged.run.program == program:
                values = score(np.nan_to_num(rows[i]))
                alarm = (values > limit) & (judged.end_s >= judged.run.trace.start_s + STARTED_S)
                events = tuple(Opened(*event, "") for event in persistent_events(judged.end_s, alarm))
                out[i] = JudgedRun(judged.run, judged.end_s, values, alarm, events)
    return [out[i] for i in range(len(ours))]


def _limit(fit: Fit, judged: Sequence[JudgedRun], rows: Sequence[Array]) -> float:
    """The score that `ABOVE` of the healthy moments exceed, each scored without its own program."""
    programs = sorted({each.run.program for each in judged})
    scores = []
    for fold in range(min(FOLDS, len(programs))):
        left_out = set(programs[fold::FOLDS])
        inside = [i for i, each in enumerate(judged) if each.run.program not in left_out]
        outside = [i for i, each in enumerate(judged) if each.run.program in left_out]
        score = _fitted(fit, _healthy_rows([judged[i] for i in inside], [rows[i] for i in inside]))
        scores.append(score(_healthy_rows([judged[i] for i in outside], [rows[i] for i in outside])))
    return float(np.quantile(np.concatenate(scores), 1 - ABOVE))


def _healthy_rows(judged: Sequence[JudgedRun], rows: Sequence[Array]) -> Array:
    chosen = [values[each.healthy] for each, values in zip(judged, rows, strict=True)]
    return np.nan_to_num(np.concatenate(chosen))


def _fitted(fit: Fit, train: Array) -> Callable[[Array], Array]:
    mean, scale = train.mean(0), train.std(0) + 1e-3
    score = fit((train - mean) / scale, 0)
    return lambda x: score((x - mean) / scale)


def _ecod(train: Array, seed: int) -> Callable[[Array], Array]:
    from pyod.models.ecod import ECOD

    model: Any = ECOD().fit(train)
    return lambda x: np.asarray(model.decision_function(x))


METHODS: dict[str, Fit] = {**RIVALS, "ECOD (PyOD)": _ecod}


@dataclass(frozen=True, slots=True)
class Row:
    """What one method did on some runs."""

    method: str
    runs: int
    healthy_hours: float
    false_events: int
    false_per_hour: float
    windows_above: float  # part of the healthy moments
    faults: int
    found: int
    named: int  # found, and an event names the cause that was imposed
    median_delay_s: float | None
    roc_auc: float


def summarise(method: str, judged: Sequence[JudgedRun]) -> Row:
    hours = sum(each.onset_s - each.run.trace.start_s for each in judged if each.is_first) / 3600
    faults = [(each, phase) for each in judged for phase in each.run.phases]
    delays = [hits[0].opened_s - phase.onset_s for each, phase in faults if (hits := each.hits(phase))]
    healthy = np.concatenate([each.score[each.healthy] for each in judged])
    inside = [
        each.score[(each.end_s >= phase.onset_s + FULL_EFFECT_S) & (each.end_s <= phase.end_s)]
        for each in judged
        for phase in each.run.phases
    ]
    false = sum(len(each.false) for each in judged)
    return Row(
        method,
        len(judged),
        round(hours, 3),
        false,
        round(false / max(hours, 1e-9), 2),
        round(float(np.concatenate([each.alarm[each.healthy] for each in judged]).mean()), 4),
        len(faults),
        len(delays),
        sum(each.names(phase) for each, phase in faults),
        round(median(delays), 1) if delays else None,
        round(roc_auc(healthy, np.concatenate(inside)), 3) if inside else float("nan"),
    )


def by_fault(judged: dict[str, Sequence[JudgedRun]]) -> list[dict[str, Any]]:
    """Found by each method, and the delay and the causes that ours names."""
    faults = sorted({phase.fault for each in judged[OURS] for phase in each.run.phases})
    rows = []
    for fault in faults:
        row: dict[str, Any] = {"fault": fault}
        for method, runs in judged.items():
            hits = [(phase, each.hits(phase)) for each in runs for phase in each.run.phases if phase.fault == fault]
            row["runs"] = len(hits)
            row[method] = sum(bool(events) for _, events in hits)
            if method == OURS:
                row["delays_s"] = [round(events[0].opened_s - phase.onset_s) for phase, events in hits if events]
                row["causes"] = [" + ".join(dict.fromkeys(event.cause for event in events)) for _, events in hits]
        rows.append(row)
    return rows


def by_run(judged: Sequence[JudgedRun]) -> list[dict[str, Any]]:
    """Ours on every run: false events, faults, events."""
    rows = []
    for each in judged:
        for phase in each.run.phases:
            hits = each.hits(phase)
            rows.append(
                {
                    "run": each.run.name,
                    "place": list(PROGRAMS).index(each.run.program),
                    "disturbed": each.run.is_disturbed,
                    "false": [event.cause for event in each.false],
                    "fault": phase.fault,
                    "found_as": list(dict.fromkeys(event.cause for event in hits)),
                    "delay_s": round(hits[0].opened_s - phase.onset_s) if hits else None,
                    "named": each.names(phase),
                }
            )
    return rows


def shares_of_questions(judged: Sequence[JudgedRun]) -> dict[str, float]:
    """The part of the healthy moments with a finding of each question, or with a score above the threshold."""
    moments = sum(int(each.healthy.sum()) for each in judged)
    counts = sum((each.questions for each in judged if each.is_first), Counter())
    return {name: round(counts[name] / max(moments, 1), 4) for name in ("harm", "change", "new", "score")}


def suspicions(judged: Sequence[JudgedRun]) -> dict[str, list[str]]:
    """The runs that are suspected to stand still: while they are healthy, while they spin, in another fault."""
    faults = [(each, phase) for each in judged for phase in each.run.phases]
    return {
        "healthy": [each.run.name for each in judged if each.suspected()],
        "spinning": [each.run.name for each, phase in faults if phase.fault == SPINNING and each.suspected(phase)],
        "other faults": [each.run.name for each, phase in faults if phase.fault != SPINNING and each.suspected(phase)],
    }


def chosen_half(runs: Sequence[ZooRun], half: str) -> list[ZooRun]:
    """Of the programs recorded first, those at even places are for choosing, those at odd places for the report.

    Runs on two CPUs are parts of their own, and so are the programs recorded later.
    """
    names = list(PROGRAMS)
    first = {name: ("select", "report")[place % 2] for place, name in enumerate(names[:FIRST_RECORDED])}
    halves = first | dict.fromkeys(names[FIRST_RECORDED:], "blind") | dict.fromkeys(NEWEST, "newest")
    halves |= dict.fromkeys(names[FIRST_WITH_LOOKS:], "looks")
    on_two = dict.fromkeys(names, "two-cpus-blind") | dict.fromkeys(FIRST_ON_TWO, "two-cpus")
    of_run = [(halves if len(run.raw.labels["cpus"]) == 1 else on_two)[run.program] for run in runs]
    return [run for run, its_half in zip(runs, of_run, strict=True) if half in ("all", its_half)]


def print_tables(document: dict[str, Any]) -> None:
    print(f"recorded: {document['half']}, {document['programs']} programs; rivals trained on {document['trained_on']}")
    print("| method | false events | per healthy hour | windows above | found | named | median delay | ROC-AUC |")
    print("|---|---|---|---|---|---|---|---|")
    for row in document["methods"]:
        delay = "" if row["median_delay_s"] is None else f"{row['median_delay_s']:.0f} s"
        print(
            f"| {row['method']} | {row['false_events']} in {row['healthy_hours']:.2f} h | {row['false_per_hour']} "
            f"| {row['windows_above']:.2%} | {row['found']} of {row['faults']} | {row['named']} | {delay} "
            f"| {row['roc_auc']} |"
        )
    print("shares of healthy moments by question:", document["questions"])
    for phase, names in document["suspicions"].items():
        print(f"suspected to stand still, {phase}: {', '.join(names) or 'none'}")
    for phase, row in document["looks"].items():
        kinds = f": {', '.join(row['kinds'])}" if row["kinds"] else ""
        failed = f"; {row['failed']} saw no process" if row["failed"] else ""
        about = " (false accusations)" * (phase == "healthy")
        print(f"looks that claim a hang, {phase}{about}: {row['claims']} of {row['looks']}{kinds}{failed}")
    if cost := document["cost_of_looks"]:
        print(
            f"a look: {cost['median_cpu_s']:.2f} s of CPU time in the median, {cost['most_cpu_s']:.2f} s at most; "
            f"a process stopped for {cost['most_stopped_ms']:.1f} ms at most"
        )
    methods = [row["method"] for row in document["methods"]]
    print("\n| fault | runs | " + " | ".join(methods) + " | delays | named as |\n|" + "---|" * (len(methods) + 4))
    for row in document["faults"]:
        counts = " | ".join(str(row[method]) for method in methods)
        delays = ", ".join(f"{delay} s" for delay in row["delays_s"])
        print(f"| {row['fault']} | {row['runs']} | {counts} | {delays} | {', '.join(filter(None, row['causes']))} |")
    print("\n| run | false events | fault | found as | delay |\n|---|---|---|---|---|")
    for row in document["runs"]:
        mark = r"\*" if row["disturbed"] else ""
        delay = "" if row["delay_s"] is None else f"{row['delay_s']} s"
        found = ", ".join(row["found_as"]) or "not found"
        print(f"| {row['run']}{mark} | {', '.join(row['false']) or 'none'} | {row['fault']} | {found} | {delay} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", help="a directory of raw runs; default: the data package")
    halves = ("report", "select", "blind", "two-cpus", "two-cpus-blind", "newest", "looks", "all")
    parser.add_argument("--half", choices=halves, default="report")
    parser.add_argument("--programs", nargs="+", default=(), metavar="NAME", help="report these programs of the half")
    parser.add_argument("--cgroup", choices=("v1", "v2"), default="v2", help="v1: as if the host had no cgroup v2")
    parser.add_argument("--json", type=Path, help="write the rows to this file too")
    parser.add_argument("--ours-only", action="store_true", help="leave the rivals out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    # A host with cgroup v1 still counts its own pressure, so that the node's channels stay.
    loaded = list(load_zoo(options.data, keep_shared=options.cgroup == "v1"))
    runs = [each for run in loaded for each in one_fault_each(run)]
    if options.cgroup == "v1":
        runs = [as_cgroup_v1(run) for run in runs]
    kept = {id(r) for r in chosen_half(runs, options.half) if not options.programs or r.program in options.programs}
    if not kept:
        parser.error(f"no run of the half {options.half!r} and of these programs")
    pairs = [judge_by_questions(run) for run in runs if not options.ours_only or id(run) in kept]
    ours, rows = [judged for judged, _ in pairs], [values for _, values in pairs]
    judged = {OURS: ours}
    for name, fit in {} if options.ours_only else METHODS.items():
        judged[name] = judge_by_rival(fit, ours, rows)
    judged = {name: [each for each in all_runs if id(each.run) in kept] for name, all_runs in judged.items()}
    names = {each.run.name for each in judged[OURS]}
    whole = [run for run in loaded if run.name in names]
    document = {
        "data": "recorded",
        "half": options.half,
        "programs": len({each.run.program for each in judged[OURS]}),
        "trained_on": "all other programs",
        "methods": [asdict(summarise(name, each)) for name, each in judged.items()],
        "questions": shares_of_questions(judged[OURS]),
        "suspicions": suspicions(judged[OURS]),
        "looks": {phase: asdict(claims) for phase, claims in claims_of(whole).items() if claims.looks},
        "cost_of_looks": (cost := cost_of(whole)) and asdict(cost),
        "faults": by_fault(judged),
        "runs": by_run(judged[OURS]),
    }
    print_tables(document)
    if options.json:
        files.write(options.json, orjson.dumps(document, option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    main()
