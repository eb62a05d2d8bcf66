"""Measure the three questions: recorded faults, simulated faults, and healthy programs that were never seen.

    python benchmarks/questions.py hpas DATA/telemetry/hpas   recorded: one healthy run is known, the rest judged
    python benchmarks/questions.py faults --hours 2              simulated: every anomaly, with the bundled detector
    python benchmarks/questions.py unseen --hours 2              simulated: twelve healthy programs nobody has seen
    python benchmarks/questions.py cost --threads 32000          CPU time of the questions against that of scoring

An event is true if it is open during a fault, or opens within 90 s of its end, and false otherwise. Moments are judged
every 10 s (simulated: 15 s). ROC-AUC and F1 of moments are not point-adjusted: a moment counts as it is, also in the
first and the last seconds of a fault. The settings were chosen on every second faulty recording in the order of their
names, beginning with the first; `hpas` reports the others unless told otherwise.
"""

from __future__ import annotations

import argparse
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clustertwin.core.channels import CPU, NODE, Schema
from clustertwin.core.traces import JobSpan, NodeChannels, Trace
from clustertwin.telemetry.detection.bundled import bundled
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.tracker import EventSettings, Tracker
from clustertwin.telemetry.detection.questions.assess import assess
from clustertwin.telemetry.detection.questions.job_parts import measure_signals, parts_of
from clustertwin.telemetry.detection.questions.question_memory import JobLabel, QuestionMemory
from clustertwin.telemetry.detection.questions.question_settings import QuestionSettings
from clustertwin.telemetry.detection.questions.usual import ProgramUsual
from clustertwin.telemetry.moments.moment import Moment
from clustertwin.telemetry.moments.trace_buffer import TraceBuffer
from clustertwin.telemetry.simulation.anomalies import available_anomalies, family
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.harm_channels import with_harm_channels
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate
from clustertwin.telemetry.studies.event_metrics import EventCounts, labels_of, match_events, replay, track_events
from clustertwin.telemetry.studies.window_metrics import roc_auc
from healthy_programs import PROGRAMS, simulate_unseen

Array = NDArray[np.float64]
STRIDE_S = 10
STARTED_S = 90  # moments before this are the application's start-up
GRACE_S = 90
ONE_RUN = QuestionSettings(learn_runs=1)
OURS, SHIPPED = "clustertwin", "clustertwin, scores as before"


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    start_s: int
    end_s: int


@dataclass(frozen=True, slots=True)
class FaultyRun:
    """One recording of an application, with the faults imposed on it."""

    name: str
    trace: Trace
    faults: tuple[Fault, ...]

    @property
    def order(self) -> str:
        if len(self.faults) < 2:
            return "alone"
        faults = sorted(self.faults, key=lambda fault: fault.start_s)
        overlap = any(later.start_s < earlier.end_s for earlier, later in pairwise(faults))
        return "overlapping" if overlap else "in sequence"

    @property
    def application(self) -> str:
        return self.trace.spans[0].name


@dataclass(frozen=True, slots=True)
class Judged:
    """A run as one method judged it: a score for each moment, alarm from `limit` on, and events (onset, open, last)."""

    end_s: NDArray[np.int64]  # (moment,)
    score: Array  # (moment,)
    limit: float
    events: tuple[tuple[int, int], ...]  # (opened, last seen)


def read_hpas(path: Path) -> FaultyRun:
    """A recording by LDMS: ratios of every thread, runnable processes and memory. The application is one job.

    Samples are placed by their time and hold for the usual step between two. Any other second, or one with an unknown
    value, is invalid. A channel that was not recorded is left out. The application is the file's name up to the first
    "_", "-" or ".".
    """
    recorded = np.load(path)
    modes = recorded["modes"].tolist() if "modes" in recorded else list(CPU.names)
    second = np.round(recorded["t"] - recorded["t"][0]).astype(np.int64)
    step_s = max(int(np.median(np.diff(second))), 1)
    threads, seconds = len(recorded["ratio"]), int(second[-1]) + step_s
    sample = np.searchsorted(second, np.arange(seconds), "right") - 1  # (second,) the last one
    held = np.arange(seconds) - second[sample] < step_s
    ratio = recorded["ratio"].astype(np.float32)[:, sample][..., [modes.index(name) for name in CPU.names]]
    ratio[:, ~held] = np.nan
    ratio /= np.maximum(ratio.sum(-1, keepdims=True), 1e-6)
    valid = ~np.isnan(ratio).any(-1)
    ratio[~valid] = 0
    columns = _node_columns(recorded, threads)
    schema = Schema(tuple(channel for channel in NODE.channels if channel.name in columns))
    values = np.full((seconds, len(schema)), np.nan, np.float32)
    for i, name in enumerate(schema.names):
        values[held, i] = columns[name][sample][held]
    user = ratio[:, :, 0].sum(0) / np.maximum(valid.sum(0), 1)
    # The rows after the application's end are idle.
    busy = np.flatnonzero(held & (user >= np.quantile(user[held], 0.9) / 2))
    name = re.split(r"[_.-]", path.stem)[0]
    span = JobSpan(path.stem, "n1", tuple(range(threads)), float(busy[0] + 1), float(busy[-1] + 1), name=name)
    channels = NodeChannels(schema, values) if columns else None
    trace = Trace("n1", span.cpus, 0, CPU, ratio, valid, (span,), node_channels=channels)
    faults = recorded.get("anomalies", ())
    return FaultyRun(path.stem, trace, tuple(Fault(str(k), int(a), int(b)) for k, a, b in faults))


def _node_columns(recorded: Mapping[str, Array], threads: int) -> dict[str, Array]:
    """Channel of the node -> (sample,), for those that were recorded."""
    rows: dict[str, Array] = {}
    for names, table in (("node_names", "node"), ("memory_names", "memory_kb")):
        if names in recorded and table in recorded:
            rows |= dict(zip(recorded[names].tolist(), recorded[table].T, strict=True))
    columns = {}
    if "MemAvailable" in rows and "MemTotal" in rows:
        columns["memory_used"] = 1 - rows["MemAvailable"] / rows["MemTotal"]
    if "procs_running" in rows:
        columns["run_queue"] = rows["procs_running"] / (rows["procs_running"] + threads)
    return columns


def live(trace: Trace, stride_s: int = STRIDE_S) -> Iterator[Moment]:
    """The moments that the live service would have seen."""
    buffer = TraceBuffer(CPU)
    for now_s in range(stride_s, trace.end_s + 1, stride_s):
        new = slice(now_s - stride_s, now_s)
        channels = trace.node_channels and NodeChannels(trace.node_channels.schema, trace.node_channels.values[new])
        part = replace(trace, start_s=new.start, values=trace.values[:, new], valid=trace.valid[:, new])
        buffer.push(replace(part, node_channels=channels))
        yield buffer.moment(now_s)


def healthy_runs(runs: Sequence[FaultyRun]) -> dict[str, FaultyRun]:
    """Application -> its first healthy run. An application without one has none, and is compared with its own past."""
    return {run.application: run for run in reversed(runs) if not run.faults}


def known_runs(runs: Sequence[FaultyRun]) -> dict[str, ProgramUsual]:
    """What is usual after one healthy run of each application."""
    tables: dict[str, ProgramUsual] = {}
    for run in healthy_runs(runs).values():
        memory = QuestionMemory(ONE_RUN)
        judge_by_questions(run, memory)
        memory.end_jobs(run.trace.end_s + 10**6)
        tables |= memory.programs
    return tables


def judge_by_questions(run: FaultyRun, memory: QuestionMemory) -> Judged:
    """The live path: scores, questions, tracker."""
    detector, tracker = bundled(), Tracker()
    labels = {span.job: JobLabel(span.name) for span in run.trace.spans}
    end_s, score, opened, last = [], [], {}, {}
    for moment in live(run.trace):
        scores = detector.score(moment)
        assessed = assess(moment, scores, memory, detector.threshold, labels)
        held = [bool(job) for job in assessed.parts.jobs]
        end_s.append(moment.end_s)
        score.append(float(assessed.ratio[held].max(initial=0.0)))
        changes = tracker.update(moment, scores, detector.threshold, findings=assessed.findings)
        events = [change.event for change in changes] + list(tracker.open)
        for event in events:
            opened.setdefault(event.id, moment.end_s)
            last[event.id] = event.seen_s
    return Judged(np.array(end_s), np.array(score), 1.0, tuple((opened[i], last[i]) for i in opened))


def signals_of(run: FaultyRun) -> tuple[NDArray[np.int64], Array]:
    """What the rivals see: the same signals of the job, over 30 s and 100 s."""
    end_s, rows = [], []
    for moment in live(run.trace):
        parts = parts_of(moment)
        held = [i for i, job in enumerate(parts.jobs) if job]
        if held and parts.age_s[held[0]] >= STARTED_S:
            windows = [measure_signals(moment, parts, slice(-length_s, None))[held[0]] for length_s in (30, 100)]
            end_s.append(moment.end_s)
            rows.append(np.nan_to_num(np.concatenate(windows)))
    return np.array(end_s), np.array(rows, np.float64)


def _forest(train: Array, seed: int) -> Callable[[Array], Array]:
    from sklearn.ensemble import IsolationForest

    model: Any = IsolationForest(random_state=seed).fit(train)
    return lambda x: np.asarray(-model.score_samples(x))


def _pca(train: Array, seed: int) -> Callable[[Array], Array]:
    axes = np.linalg.svd(train, full_matrices=False)[2][:4]
    return lambda x: np.asarray(((x - x @ axes.T @ axes) ** 2).sum(1))


def _neighbours(train: Array, seed: int) -> Callable[[Array], Array]:
    from sklearn.neighbors import NearestNeighbors

    model: Any = NearestNeighbors(n_neighbors=5).fit(train)
    return lambda x: np.asarray(model.kneighbors(x)[0][:, -1])


def _k_means(train: Array, seed: int) -> Callable[[Array], Array]:
    """As in Netdata: two centres for each metric; the score is the part of the metrics that is far from both."""
    from sklearn.cluster import KMeans

    models = []
    for column in train.T:
        groups = min(2, len(np.unique(column)))
        centres = np.ravel(KMeans(groups, n_init=1, random_state=seed).fit(column[:, None]).cluster_centers_)
        models.append((centres, np.abs(column[:, None] - centres).min(1).max()))

    def score(x: Array) -> Array:
        far = [np.abs(c[:, None] - centres).min(1) > limit for c, (centres, limit) in zip(x.T, models, strict=True)]
        return np.asarray(np.mean(far, axis=0))

    return score


def _load(train: Array, seed: int) -> Callable[[Array], Array]:
    """The trivial baseline: idle time over 30 s."""
    from clustertwin.telemetry.detection.questions.job_parts import S

    return lambda x: x[:, S["idle"]]


RIVALS = {
    "isolation forest": _forest,
    "PCA": _pca,
    "5 nearest neighbours": _neighbours,
    "k-means per metric": _k_means,
    "idle time (trivial)": _load,
}


def judge_by_rival(
    name: str, known: tuple[NDArray[np.int64], Array], runs: Sequence[tuple[NDArray[np.int64], Array]]
) -> list[Judged]:
    """Fitted to the known run; an alarm is above all of its moments, and an event is 60 s of alarm in 90 s."""
    train = known[1]
    mean, scale = train.mean(0), train.std(0) + 1e-3
    score = RIVALS[name]((train - mean) / scale if name != "idle time (trivial)" else train, 0)

    def scaled(x: Array) -> Array:
        return (x - mean) / scale if name != "idle time (trivial)" else x

    limit = float(score(scaled(train)).max()) * (1 + 1e-9)
    out = []
    for end_s, rows in runs:
        values = score(scaled(rows))
        out.append(Judged(end_s, values, limit, persistent_events(end_s, values > limit)))
    return out


def persistent_events(end_s: NDArray[np.int64], alarm: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
    events: list[list[int]] = []
    for i, now_s in enumerate(end_s.tolist()):
        recent = alarm[: i + 1][end_s[: i + 1] > now_s - 90]
        if events and now_s - events[-1][1] <= 120:
            if alarm[i]:
                events[-1][1] = now_s
        elif recent.sum() * STRIDE_S >= 60:
            events.append([now_s, now_s])
    return tuple((opened, last) for opened, last in events)


def hpas_rows(runs: Sequence[FaultyRun], judged: Sequence[Judged]) -> list[str]:
    """ROC-AUC and event recall by kind and order, false events, F1 of events and of moments."""
    normal, by_kind = [], {}
    found: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    false, delays, moments = 0, [], np.zeros(3)  # true alarms, false alarms, missed moments
    for run, seen in zip(runs, judged, strict=True):
        known = (seen.end_s > STARTED_S) & (seen.end_s < run.trace.spans[0].end_s)
        inside = np.zeros(len(seen.end_s), np.bool_)
        for fault in run.faults:
            now = (seen.end_s > fault.start_s) & (seen.end_s <= fault.end_s)
            inside |= now
            by_kind.setdefault((fault.kind, run.order), []).append(seen.score[now & known])
            total[fault.kind, run.order] += 1
            hits = [o for o, last in seen.events if o <= fault.end_s + GRACE_S and last > fault.start_s]
            if hits:
                found[fault.kind, run.order] += 1
                delays.append(max(min(hits) - fault.start_s, 0))
        normal.append(seen.score[~inside & known])
        alarm = seen.score >= seen.limit
        moments += [(alarm & inside & known).sum(), (alarm & ~inside & known).sum(), (~alarm & inside & known).sum()]
        false += sum(
            not any(o <= f.end_s + GRACE_S and last > f.start_s for f in run.faults) for o, last in seen.events
        )
    rest = np.concatenate(normal)
    hits, there = sum(found.values()), sum(total.values())
    true, wrong, missed = moments
    lines = [
        f"events: {hits} of {there} found, {false} false, F1 {2 * hits / (2 * hits + false + there - hits):.3f}, "
        f"median delay {np.median(delays) if delays else float('nan'):.0f} s; "
        f"moments: F1 {2 * true / (2 * true + wrong + missed):.3f}"
    ]
    for key in sorted(total):
        auc = roc_auc(rest, np.concatenate(by_kind[key]))
        lines.append(f"    {key[0]:10} {key[1]:12} ROC-AUC {auc:.3f}   events {found[key]} of {total[key]}")
    return lines


def hpas(directory: Path, half: str) -> None:
    runs = [read_hpas(path) for path in sorted(directory.glob("*.npz"))]
    faulty, healthy = [run for run in runs if run.faults], healthy_runs(runs)
    chosen = {"report": faulty[1::2], "select": faulty[0::2], "all": faulty}[half]
    if not chosen:
        raise SystemExit(f"{directory}: no recording with faults in the half {half!r}")
    tables = known_runs(runs)
    print(f"recorded: {len(chosen)} runs ({half}), {sum(len(run.faults) for run in chosen)} faults")
    for application in sorted({run.application for run in chosen}):
        of_it = [run for run in chosen if run.application == application]
        known = healthy.get(application)
        print(f"{application}: {len(of_it)} runs, healthy run known: {known.name if known else 'none, its own past'}")
        ours = [judge_by_questions(run, QuestionMemory(ONE_RUN, programs=tables)) for run in of_it]
        print(OURS, *hpas_rows(of_it, ours), sep="\n  ")
        if known is None:
            continue
        signals, seen = signals_of(known), [signals_of(run) for run in of_it]
        for name in RIVALS:
            print(name, *hpas_rows(of_it, judge_by_rival(name, signals, seen)), sep="\n  ")


def faults(hours: float, seed: int) -> None:
    """Events by kind of anomaly, from findings and as before from scores."""
    settings = ClusterSettings(hours=hours, anomalies=available_anomalies(read_signatures()), anomaly_ratio=0.4)
    traces = with_harm_channels(simulate(settings, read_signatures(), seed), seed)
    print_counts(traces)
    named = [replace(trace, spans=tuple(_named(span) for span in trace.spans)) for trace in traces]
    print("with the names of programs, which are learnt as jobs end:")
    print_counts(named)


def _named(span: JobSpan) -> JobSpan:
    return replace(span, name=family(span.job_type))


def unseen(hours: float, seed: int) -> None:
    """Every event is false: all programs are healthy."""
    traces = simulate_unseen(hours, seed)
    program = {span.job: span.job_type for trace in traces for span in trace.spans}
    for name, counts in print_counts(traces).items():
        each = Counter(program.get(event.job, "no job") for event in counts.false)
        print(f"  {name}: " + ", ".join(f"{each[p]} {p}" for p in (*PROGRAMS, "no job") if each[p]))


def print_counts(traces: Sequence[Trace]) -> dict[str, EventCounts]:
    detector, out = bundled(), {}
    for name, settings in ((OURS, EventSettings()), (SHIPPED, EventSettings(opened_by="scores"))):
        opened = track_events(replay(detector, traces, 15), detector.threshold, settings, labels_of(traces))
        counts = out[name] = match_events(opened, traces)
        kinds = ", ".join(f"{row.anomaly} {row.detected}/{row.total} ({row.delay_s:.0f} s)" for row in counts.anomalies)
        print(
            f"{name}: {counts.detected} of {counts.total} found, {counts.false_events} false in "
            f"{counts.node_days:.2f} node-days ({counts.false_per_node_day:.1f} a node-day)\n    {kinds}"
        )
        print("    false by cause: " + ", ".join(f"{n} {c}" for c, n in Counter(_causes(counts.false)).most_common()))
    return out


def _causes(events: Sequence[Event]) -> list[str]:
    return [event.cause for event in events]


def cost(threads: int) -> None:
    """CPU seconds of scoring and of the questions for one moment, after the first ones."""
    rng, nodes = np.random.default_rng(0), threads // 32
    values = rng.dirichlet([8, 1, 0.1, 1], (300, threads)).astype(np.float32).transpose(0, 2, 1).copy()
    schema = Schema(tuple(channel for channel in NODE.channels if channel.name in ("memory_used", "run_queue")))
    channels = NodeChannels(schema, (rng.random((nodes, 300, 2)) * 0.1 + 0.4).astype(np.float32))
    job = (np.arange(threads) // 16).astype(np.int32)
    detector, memory, took = bundled(), QuestionMemory(), []
    for turn in range(8):
        moment = Moment(
            10_000 + 10 * turn,
            CPU,
            values.transpose(2, 0, 1),
            np.ones((300, threads), np.bool_).T,
            tuple(f"n{i:05d}" for i in range(nodes)),
            (np.arange(threads) // 32).astype(np.int32),
            (np.arange(threads) % 32).astype(np.int32),
            tuple(f"{i:06d}" for i in range(int(job.max()) + 1)),
            job,
            np.full(threads, 1000 + 10 * turn, np.int32),
            channels,
        )
        begun = time.process_time()
        scores = detector.score(moment)
        middle = time.process_time()
        assess(moment, scores, memory, detector.threshold)
        took.append((middle - begun, time.process_time() - middle))
    scoring, asking = np.median(took[2:], axis=0)
    print(f"{threads} threads: scoring {scoring:.3f} s, questions {asking:.3f} s, ratio {asking / scoring:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("hpas", "faults", "unseen", "cost"))
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--half", choices=("report", "select", "all"), default="report")
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=32_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "hpas":
        if options.data is None:
            parser.error("hpas needs the directory of the recordings")
        hpas(options.data, options.half)
    elif options.what == "cost":
        cost(options.threads)
    else:
        {"faults": faults, "unseen": unseen}[options.what](options.hours, options.seed)


if __name__ == "__main__":
    main()
