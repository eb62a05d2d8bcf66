"""Measure the first day at a site whose programs nobody knows (simulated): false events, and faults found.

    python benchmarks/foreign_site.py                          the report: programs at odd places of the table
    python benchmarks/foreign_site.py --half choose            programs at even places, on which rules may be chosen
    python benchmarks/foreign_site.py --half choose --json a.json --hours 4 --seed 2

The programs are in `foreign_programs.py`. They share nothing with the signatures that the bundled detector was trained
on, and they were written before the rules of detection were read. One part of the site is healthy: jobs of all widths
share nodes of 16 threads, or have two. In the other part every program meets every fault that it would notice, each on
a node of its own, at a random second. A third of the programs has a name of its own, a third has the name that all
scripts have, and a third has none. Nothing is known at the start.

An event is false if no fault is imposed on its job yet. It finds a fault if it opens between the onset and the end, 15
minutes later. The rivals see the signals of the jobs that ours sees, learn from the healthy moments of the other half
of the programs, and need two alarms in three moments. Their threshold is the lowest one with no more false events than
ours: they are told the answer.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import exp
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import orjson
import torch
from numpy.typing import NDArray

from clustertwin.core import files
from clustertwin.core.channels import CPU, JOB, NODE
from clustertwin.core.traces import JobChannels, JobSpan, NodeChannels, Trace
from clustertwin.telemetry.detection.bundled import bundled
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.questions.job_parts import measure_signals, parts_of
from clustertwin.telemetry.detection.questions.question_memory import JobLabel
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import Moment
from clustertwin.telemetry.moments.trace_buffer import TraceBuffer
from clustertwin.telemetry.studies.event_metrics import track_events
from foreign_faults import FAULT_S, FAULTS, Scene
from foreign_programs import PROGRAMS, Array, Rng, Work
from questions import RIVALS

OURS, RIVALS_SHOWN = "clustertwin", ("idle time (trivial)", "k-means per metric")
THREADS, STRIDE_S = 16, 30
STARTED_S = 90  # rivals are silent before this


# --- the site: jobs on nodes, and what an exporter would give --------------------------------------------------------


@dataclass(slots=True)
class SiteJob:
    name: str
    program: str
    start_s: int
    end_s: int
    fault: str = ""
    onset_s: float = np.inf
    channels: dict[str, NDArray[np.float32]] = field(default_factory=dict)  # node -> (second, channel)


class SiteNode:
    """Threads and channels of a node over the whole time; jobs are added one after the other."""

    def __init__(self, name: str, threads: int, seconds: int, rng: Rng) -> None:
        self.name, self.cpus, self.rng = name, tuple(range(threads)), rng
        self.values = np.zeros((threads, seconds, 4), np.float32)  # the last channel, idle, is filled in at the end
        self.sums = {name: np.zeros(seconds) for name in ("queue", "io", "net", "major", "swap", "switches", "other")}
        self.calm = {name: np.ones(seconds) for name in ("cpu", "memory", "io")}  # product of 1 - pressure
        self.memory = np.full(seconds, 0.05)
        self.spans: list[tuple[SiteJob, JobSpan]] = []
        self.free_s = np.zeros(threads)

    def add(self, job: SiteJob, work: Work, cpus: tuple[int, ...], rows: slice) -> None:
        """The job's tasks `rows` run on these threads."""
        now, threads, n = slice(job.start_s, job.end_s), list(cpus), len(cpus)
        own = np.stack([each[rows] for each in (work.user, work.system, work.iowait)], -1)
        own += self.rng.normal(0, 0.008, own.shape) * (own > 0.02)  # ticks do not end on the second
        own = (own.clip(0) / np.maximum(own.clip(0).sum(-1, keepdims=True), 1)).round(2)
        self.values[threads, now, :3] = own
        self.values[threads, now, 0] += work.others[rows] if work.others.ndim == 2 else 0
        busy, waiting = own[..., :2].sum((0, 2)), own[..., 2].sum(0)
        cpu = 1 - (1 - 0.01 * busy / n) * np.exp(-work.queue)
        io = 1 - np.exp(-1.2 * waiting - work.io_mb / 2000)
        memory = np.broadcast_to(work.major / (work.major + 400), busy.shape)
        row = {
            "job_cpu": busy / n,
            "job_system": own[..., 1].sum(0) / np.maximum(busy, 1e-9),
            "job_cpu_pressure": cpu,
            "job_memory_pressure": memory,
            "job_io_pressure": io,
            "job_throttled": work.throttled,
            "job_memory": work.memory + self.rng.normal(0, 3e-4, len(busy)),
            "job_major_faults": work.major / (work.major + 100),
            "job_page_faults": (rate := work.faults * np.exp(self.rng.normal(0, 0.2, len(busy)))) / (rate + 100),
            "job_io_traffic": work.io_mb / (work.io_mb + 100),
            "job_oom_kills": 0.0,
        }
        columns = [np.broadcast_to(row[name], busy.shape) for name in JOB.names]
        job.channels[self.name] = np.stack(columns, -1).clip(0, 1).astype(np.float32)
        for name, part in (("cpu", cpu), ("memory", memory), ("io", io)):
            self.calm[name][now] *= 1 - part
        self.memory[now] += 0.9 * work.memory * n / len(self.cpus)
        sums = {"queue": work.queue, "io": work.io_mb, "net": work.net_mb, "major": work.major, "swap": work.swap}
        for name, part in (sums | {"switches": work.switches * n, "other": work.other_io_mb}).items():
            self.sums[name][now] += part
        label = ("", job.program, "run.sh")[list(PROGRAMS).index(job.program) % 3]
        span = JobSpan(job.name, self.name, cpus, job.start_s, job.end_s, job_type=job.program, name=label)
        self.spans.append((job, span))

    def finish(self) -> None:
        """The node's own channels, and a daemon or two."""
        seconds, n = self.values.shape[1], len(self.cpus)
        self.values[self.rng.integers(0, n, seconds // 20), self.rng.integers(0, seconds, seconds // 20), 1] += 0.02
        self.values[..., 3] = np.maximum(1 - self.values[..., :3].sum(-1), 0)
        self.values /= self.values.sum(-1, keepdims=True)
        sums, disk = self.sums, self.sums["io"] + self.sums["other"]
        running = self.values[..., :2].sum((0, 2)) + sums["queue"]
        blocked = self.values[..., 2].sum(0)
        switches = sums["switches"] / n + 30
        pressure = {f"{name}_pressure": 1 - calm for name, calm in self.calm.items()}
        row = pressure | {
            "memory_used": self.memory,
            "run_queue": running / (running + n),
            "blocked_tasks": blocked / (blocked + n),
            "steal": 0.0,
            "major_faults": sums["major"] / (sums["major"] + 100),
            "swap_traffic": sums["swap"] / (sums["swap"] + 1000),
            "context_switches": switches / (switches + 1000),
            "disk_busy": np.minimum(disk / 400, 1),
            "disk_traffic": disk / (disk + 100),
            "network_traffic": sums["net"] / (sums["net"] + 125),
            "network_errors": 0.0,
        }
        columns = [np.broadcast_to(row[name], seconds) for name in NODE.names]
        self.channels = np.stack(columns, -1).clip(0, 1).astype(np.float32)

    def live(self, a: int, b: int) -> Trace:
        """The seconds from a to b, with the jobs that a source would know by then."""
        known = [(job, span) for job, span in self.spans if span.start_s < b and span.end_s > a - 300]
        running = [job for job, _ in known if job.end_s > a]
        rows = np.full((len(running), b - a, len(JOB)), np.nan, np.float32)
        for row, job in zip(rows, running, strict=True):
            first, last = max(a, job.start_s), min(b, job.end_s)
            row[first - a : last - a] = job.channels[self.name][first - job.start_s : last - job.start_s]
        return Trace(
            self.name,
            self.cpus,
            a,
            CPU,
            self.values[:, a:b],
            np.ones((len(self.cpus), b - a), np.bool_),
            tuple(span for _, span in known),
            node_channels=NodeChannels(NODE, self.channels[a:b]),
            job_channels=JobChannels(JOB, tuple(job.name for job in running), rows),
        )


def healthy_site(programs: Sequence[str], nodes: int, hours: float, seed: int) -> list[SiteNode]:
    """Jobs in random order, each on the threads that are free first."""
    rng, seconds = np.random.default_rng((seed, 0)), int(hours * 3600)
    site = [SiteNode(f"h{i:02d}", THREADS, seconds, np.random.default_rng((seed, 1, i))) for i in range(nodes)]
    number = 0
    while any((node.free_s < seconds - 900).all() for node in site):
        for name in rng.permutation(list(programs)):
            program, number = PROGRAMS[name], number + 1
            width = int(rng.choice(program.widths))
            each = min(width, THREADS)
            at = np.sort(np.argsort([np.sort(node.free_s)[each - 1] for node in site])[: width // each])
            start = int(max(np.sort(site[i].free_s)[each - 1] for i in at) + rng.uniform(5, 90))
            length = int((program.hours * 3600 * np.exp(rng.normal(0, 0.5))).clip(480, 8 * 3600))
            job = SiteJob(f"{number:04d}", name, start, min(start + length, seconds))
            if job.end_s - start < 300:
                continue
            work = program.run(width, job.end_s - start, rng)
            for part, i in enumerate(at):
                cpus = tuple(np.sort(np.argsort(site[i].free_s, kind="stable")[:each]).tolist())
                site[i].add(job, work, cpus, slice(part * each, (part + 1) * each))
                site[i].free_s[list(cpus)] = job.end_s
    for node in site:
        node.finish()
    return site


def faulty_site(programs: Sequence[str], seed: int) -> list[SiteNode]:
    """Every program with every fault that it would notice, each on a node as wide as the job."""
    site, length = [], 2400 + FAULT_S + STRIDE_S
    for name in programs:
        for fault in FAULTS:
            rng = np.random.default_rng((seed, 2, list(PROGRAMS).index(name), list(FAULTS).index(fault)))
            program, row, onset = PROGRAMS[name], FAULTS[fault], int(rng.uniform(400, 2400))
            width = min(int(rng.choice(program.widths)), THREADS)
            work = program.run(width, onset + FAULT_S, rng)
            scene = Scene(work, onset, int(rng.integers(width)), program.waits)
            io_mb = float(work.io_mb[onset:].mean())
            noticed = scene.busy.mean() >= row.least_busy and io_mb >= row.least_io_mb and width >= row.least_threads
            if not noticed or program.waits not in row.waits or scene.busy[scene.victim].mean() < row.least_busy / 2:
                continue
            row.impose(scene)
            node = SiteNode(f"f{len(site):03d}", width, length, rng)
            job = SiteJob(f"{name}-{fault}", name, 5, 5 + onset + FAULT_S, fault, 5 + onset)
            node.add(job, work, node.cpus, slice(None))
            node.finish()
            site.append(node)
    return site


# --- judges ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen:
    """What a site gave: its jobs, its events, and for each job the signals of every moment."""

    jobs: dict[str, SiteJob]
    events: list[tuple[int, str, str]]  # opened_s, job, cause
    signals: dict[str, tuple[Array, Array]]  # job -> end_s (moment,), signals (moment, signal)


def judge(site: Sequence[SiteNode]) -> Seen:
    """The live path, from nothing; signals are kept for the rivals."""
    detector, rows = bundled(), defaultdict(list)
    jobs = {job.name: job for node in site for job, _ in node.spans}
    labels = {span.job: JobLabel(span.name, "") for node in site for _, span in node.spans if span.name}

    def moments() -> Iterator[tuple[Moment, Scores]]:
        buffer = TraceBuffer(CPU)
        for now_s in range(STRIDE_S, site[0].values.shape[1] + 1, STRIDE_S):
            for node in site:
                buffer.push(node.live(now_s - STRIDE_S, now_s))
            moment = buffer.moment(now_s)
            parts = parts_of(moment)
            windows = [measure_signals(moment, parts, slice(-length_s, None)) for length_s in (30, 100)]
            signals = np.concatenate(windows, -1)
            for i, name in enumerate(parts.jobs):
                if name and parts.age_s[i] >= STARTED_S and now_s < jobs[name].end_s:
                    rows[name].append((now_s, signals[i]))
            yield moment, detector.score(moment)

    events = [(at_s, event) for at_s, event in track_events(moments(), detector.threshold, labels=labels)]
    signals = {name: (np.array([t for t, _ in each]), _with_past([x for _, x in each])) for name, each in rows.items()}
    return Seen(jobs, [(at_s, _job_of(event), event.cause) for at_s, event in events], signals)


def _job_of(event: Event) -> str:
    return str(event.job or next(iter(event.jobs), ""))


def _with_past(rows: Sequence[Array]) -> Array:
    """Signals, and how far each is from its mean in the job's past."""
    now = np.nan_to_num(np.array(rows, float))
    past = np.cumsum(now, 0) / np.arange(1, len(now) + 1)[:, None]
    return np.concatenate([now, now - np.vstack([now[:1], past[:-1]])], 1)


def rival_scores(name: str, seen: Sequence[Seen], folds: Sequence[Sequence[str]]) -> list[dict[str, Array]]:
    """For each site, job -> score of every moment, 2 of 3 in a row: by what the other fold's healthy moments taught."""
    out: list[dict[str, Array]] = [{} for _ in seen]
    for fold in folds:
        others = [
            s.signals[j][1] for s in seen for j in s.signals if not s.jobs[j].fault and s.jobs[j].program not in fold
        ]
        train = np.concatenate(others)[::3]
        mean, scale = (0, 1) if "trivial" in name else (train.mean(0), train.std(0) + 1e-3)
        score = RIVALS[name]((train - mean) / scale, 0)
        for scores, site in zip(out, seen, strict=True):
            for job in (job for job in site.signals if site.jobs[job].program in fold):
                x = score((site.signals[job][1] - mean) / scale)
                scores[job] = np.median(
                    [x, *(np.concatenate([np.full(k, -np.inf), x[:-k]])[: len(x)] for k in (1, 2))], 0
                )
    return out


def rival_events(seen: Seen, scores: Mapping[str, Array], limit: float) -> list[tuple[int, str, str]]:
    """An event opens with an alarm, if there was none in the two minutes before."""
    events = []
    for job, score in scores.items():
        at = np.flatnonzero(score > limit)
        new = at[np.diff(at, prepend=-100) > 120 // STRIDE_S]
        events += [(int(seen.signals[job][0][i]), job, "") for i in new]
    return events


@dataclass(frozen=True, slots=True)
class Row:
    """What one method did."""

    method: str
    node_days: float
    false_events: int  # in the healthy part
    false_per_node_day: float
    upper_95: float
    false_before_onset: int
    hours_before_onset: float  # of jobs
    faults: int
    found: int
    named: int
    median_delay_s: float | None


def count(method: str, healthy: Seen, faulty: Seen, node_days: float, events: Sequence[Sequence[Any]]) -> Row:
    false = len(events[0])
    hits = hits_of(faulty, events[1])
    jobs = faulty.jobs.values()
    return Row(
        method,
        node_days,
        false,
        round(false / node_days, 2),
        round(poisson_upper(false) / node_days, 2),
        sum(at_s <= faulty.jobs[job].onset_s for at_s, job, _ in events[1] if job),
        round(sum(job.onset_s - job.start_s for job in jobs) / 3600, 1),
        len(jobs),
        len(hits),
        sum(any(cause in FAULTS[faulty.jobs[job].fault].causes for _, cause in each) for job, each in hits.items()),
        round(median(each[0][0] for each in hits.values())) if hits else None,
    )


def hits_of(faulty: Seen, events: Sequence[tuple[int, str, str]]) -> dict[str, list[tuple[float, str]]]:
    """Job with a fault that was found -> (delay, cause) of the events that found it."""
    hits: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for at_s, job, cause in sorted(events):
        if job and faulty.jobs[job].onset_s < at_s <= faulty.jobs[job].end_s + STRIDE_S:
            hits[job].append((at_s - faulty.jobs[job].onset_s, cause))
    return hits


def poisson_upper(events: int, level: float = 0.95) -> float:
    """The mean at which so few events have a probability of 5 %.

    >>> round(poisson_upper(0), 2), round(poisson_upper(3), 2)
    (3.0, 7.75)
    """
    low, high = 0.0, 10.0 + 3 * events
    for _ in range(60):
        mean = (low + high) / 2
        term = total = exp(-mean)
        for i in range(1, events + 1):
            term *= mean / i
            total += term
        low, high = (mean, high) if total > 1 - level else (low, mean)
    return low


def equal_limit(seen: Sequence[Seen], scores: Sequence[Mapping[str, Array]], most: int) -> float:
    """The lowest threshold with at most this many false events."""
    healthy = [scores[0][job] for job in scores[0]]
    early = [score[seen[1].signals[j][0] <= seen[1].jobs[j].onset_s] for j, score in scores[1].items()]
    limits = np.unique(np.concatenate([*healthy, *early]))
    low, high = 0, len(limits) - 1
    while low < high:
        middle = (low + high) // 2
        false = len(rival_events(seen[0], scores[0], limits[middle]))
        false += sum(
            at_s <= seen[1].jobs[job].onset_s for at_s, job, _ in rival_events(seen[1], scores[1], limits[middle])
        )
        low, high = (low, middle) if false <= most else (middle + 1, high)
    return float(limits[low])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=("choose", "report"), default="report")
    parser.add_argument("--nodes", type=int, default=8, help="of the healthy part")
    parser.add_argument("--hours", type=float, default=12.0, help="of the healthy part")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the rows to this file too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    programs = list(PROGRAMS)[options.half == "report" :: 2]
    sites = healthy_site(programs, options.nodes, options.hours, options.seed), faulty_site(programs, options.seed)
    healthy, faulty = seen = [judge(site) for site in sites]
    node_days = options.nodes * options.hours / 24
    rows = [count(OURS, healthy, faulty, node_days, [healthy.events, faulty.events])]
    for name in RIVALS_SHOWN:
        scores = rival_scores(name, seen, (programs[::2], programs[1::2]))
        limit = equal_limit(seen, scores, rows[0].false_events + rows[0].false_before_onset)
        events = [rival_events(site, each, limit) for site, each in zip(seen, scores, strict=True)]
        rows.append(count(name, healthy, faulty, node_days, events))
    document = {
        "data": "simulated",
        **{name: getattr(options, name) for name in ("half", "nodes", "hours", "seed")},
        "methods": [asdict(row) for row in rows],
        "programs": [by_program(name, healthy, faulty) for name in programs],
        "faults": [by_fault(name, faulty) for name in FAULTS],
        "false": [
            {"job": job, "program": site.jobs[job].program if job else "", "at_s": at_s, "cause": cause, "fault": fault}
            for site in seen
            for at_s, job, cause in site.events
            if not job or at_s <= site.jobs[job].onset_s
            for fault in [site.jobs[job].fault if job else ""]
        ],
    }
    print_tables(document)
    if options.json:
        files.write(options.json, orjson.dumps(document, option=orjson.OPT_INDENT_2))


def by_program(name: str, healthy: Seen, faulty: Seen) -> dict[str, Any]:
    jobs = [job for job in healthy.jobs.values() if job.program == name]
    of_it = [job for job in faulty.jobs.values() if job.program == name]
    before = [(at_s, job, cause) for at_s, job, cause in faulty.events if job and at_s <= faulty.jobs[job].onset_s]
    false = [cause for _, job, cause in healthy.events if job and healthy.jobs[job].program == name]
    false += [cause for _, job, cause in before if faulty.jobs[job].program == name]
    hits = hits_of(faulty, faulty.events)
    return {
        "program": name,
        "jobs": len(jobs),
        "job_hours": round(sum(job.end_s - job.start_s for job in jobs) / 3600, 1),
        "false": dict(Counter(false)),
        "faults": len(of_it),
        "found": sum(job.name in hits for job in of_it),
        "missed": [job.fault for job in of_it if job.name not in hits],
    }


def by_fault(name: str, faulty: Seen) -> dict[str, Any]:
    jobs = [job.name for job in faulty.jobs.values() if job.fault == name]
    hits = {job: each for job, each in hits_of(faulty, faulty.events).items() if job in jobs}
    causes = Counter(cause for each in hits.values() for cause in {cause for _, cause in each})
    delay_s = round(median(each[0][0] for each in hits.values())) if hits else None
    named = sum(any(cause in FAULTS[name].causes for _, cause in each) for each in hits.values())
    return {
        "fault": name,
        "jobs": len(jobs),
        "found": len(hits),
        "named": named,
        "delay_s": delay_s,
        "as": dict(causes),
    }


def print_tables(document: Mapping[str, Any]) -> None:
    print(f"simulated: {document['half']} half, seed {document['seed']}, {len(document['programs'])} programs")
    print("| method | false events, healthy part | a node-day (95 % below) | before onset | found | named | delay |")
    print("|---|---|---|---|---|---|---|")
    for row in document["methods"]:
        print(
            f"| {row['method']} | {row['false_events']} in {row['node_days']:.1f} node-days "
            f"| {row['false_per_node_day']} ({row['upper_95']}) "
            f"| {row['false_before_onset']} in {row['hours_before_onset']} job-hours "
            f"| {row['found']} of {row['faults']} | {row['named']} | {row['median_delay_s']} s |"
        )
    print("\n| program | jobs | hours | false events | found | missed |\n|---|---|---|---|---|---|")
    for row in document["programs"]:
        false = ", ".join(f"{n} {cause}" for cause, n in row["false"].items()) or "none"
        found, missed = f"{row['found']} of {row['faults']}", ", ".join(row["missed"])
        print(f"| {row['program']} | {row['jobs']} | {row['job_hours']} | {false} | {found} | {missed} |")
    print("\n| fault | found | named | delay | found as |\n|---|---|---|---|---|")
    for row in document["faults"]:
        causes = ", ".join(f"{n} {cause}" for cause, n in row["as"].items())
        print(f"| {row['fault']} | {row['found']} of {row['jobs']} | {row['named']} | {row['delay_s']} s | {causes} |")


if __name__ == "__main__":
    main()
