"""How many threads does the live loop hold on one core, ingest included? Simulated exporters -> scores and events.

    python benchmarks/service.py [--threads 128 1024 10240 102400] [--stride 10] [--seconds 40] [--json]

Every second each node's /metrics page, as our exporter writes it, is parsed and turned into ratios; every `stride`
seconds all threads are scored by the bundled detector with all its views, and events are followed, explained and
stored. What runs is simulated, normal and different from node to node of a small cluster, which is repeated. CPU time
of this process. Sample to score is what the newest second waits for its score when seconds come at 1 Hz and one core
does all in turn. A stride of one second is the hardest; `holds` is the number of threads with which the core is full.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from clustertwin.core.traces import JobSpan, Trace
from clustertwin.service.loop import Loop, LoopSettings
from clustertwin.service.state import ServiceState
from clustertwin.service.store import Store
from clustertwin.telemetry.campaign.simulation.cluster import simulate
from clustertwin.telemetry.campaign.simulation.demand import ClusterSettings
from clustertwin.telemetry.campaign.simulation.signature import read_signatures
from clustertwin.telemetry.continual.handover import Handover
from clustertwin.telemetry.counters import JobCpus
from clustertwin.telemetry.detection.bundled import bundled
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.pages import Pages
from clustertwin.telemetry.rates import Faults, RateStream

NODE_THREADS = 128
VARIANTS = 4  # nodes that are simulated; the cluster repeats them
PAST_S = 300


def pages(trace: Trace, first: int) -> list[bytes]:
    """The pages of a node from second `first` on, its counters in hundredths as the kernel has them."""
    ticks = np.rint(np.cumsum(trace.values[:, first:], axis=1) * 100).astype(np.int64)  # (cpu, second, channel)
    made = []
    for k in range(ticks.shape[1]):
        end_s = trace.start_s + first + k + 1
        lines = ["# TYPE twin_cpu_seconds_total counter\n"]
        for cpu, row in zip(trace.cpus, ticks[:, k].tolist(), strict=True):
            user, system, iowait, idle = row
            counts = {"user": user, "nice": 0, "system": system, "idle": idle, "iowait": iowait, "irq": 0}
            lines += [
                f'twin_cpu_seconds_total{{cpu="{cpu}",mode="{mode}"}} {10**6 + count}e-2\n'
                for mode, count in (counts | {"softirq": 0, "steal": 0}).items()
            ]
        lines.append("# TYPE twin_job_cpu_allocated gauge\n")
        for span in trace.spans:
            if span.start_s < end_s <= span.end_s:
                lines += [f'twin_job_cpu_allocated{{jobid="{span.job}",cpu="{cpu}"}} 1\n' for cpu in span.cpus]
        made.append("".join(lines).encode())
    return made


class Exporters:
    """A feed that asks every node once a second, in turn."""

    source, pace, patient = "simulated exporters", 1.0, False
    problems: tuple[str, ...] = ()
    faults = Faults()

    def __init__(self, traces: list[Trace], texts: list[list[bytes]], nodes: int) -> None:
        self.traces, self.texts = traces, texts
        self.names = [f"n{i:05d}" for i in range(nodes)]
        self.pages = [Pages(name) for name in self.names]
        self.streams = [RateStream() for _ in self.names]
        self.second = 0
        self.began_s: dict[tuple[str, tuple[int, ...]], float] = {}
        self.start_s = traces[0].start_s + PAST_S

    def now_s(self) -> float:
        return float(self.start_s + self.second)

    def take(self) -> list[Trace]:
        """The first time, what each node did before the benchmark begins."""
        if self.second == 0:
            self.read()
            self.second = 1
            return [self.past(i, name) for i, name in enumerate(self.names)]
        made = self.read()
        self.second += 1
        return made

    def past(self, i: int, name: str) -> Trace:
        trace = self.traces[i % VARIANTS]
        spans = tuple(
            replace(span, node=name, job=f"{name}-{span.job}") for span in trace.spans if span.start_s < self.start_s
        )
        self.began_s |= {(span.job, span.cpus): span.start_s for span in spans}
        return replace(trace, node=name, values=trace.values[:, :PAST_S], valid=trace.valid[:, :PAST_S], spans=spans)

    def read(self) -> list[Trace]:
        made = []
        for i, name in enumerate(self.names):
            reading = self.pages[i].read(self.texts[i % VARIANTS][self.second], self.now_s())
            jobs = tuple(JobCpus(f"{name}-{job.job}", job.cpus) for job in reading.jobs)
            trace = self.streams[i].push(replace(reading, jobs=jobs))
            if trace is not None:
                made.append(replace(trace, spans=tuple(self.begun(span) for span in trace.spans)))
        return made

    def begun(self, span: JobSpan) -> JobSpan:
        """With the start that the job has, which a stream that began in its midst cannot know."""
        return replace(span, start_s=self.began_s.get((span.job, span.cpus), span.start_s))

    def close(self) -> None:
        pass


def run(detector: Detector, feed: Exporters, stride_s: int, seconds: int, directory: Path) -> dict[str, float]:
    handover: Future[Handover] = Future()
    handover.set_result(Handover(directory, detector))
    state = ServiceState(directory, Store(directory / "state.sqlite"))
    loop = Loop(state, feed, handover, LoopSettings(stride_s=stride_s), clock=time.process_time)
    spent: list[float] = []
    scored: list[int] = []  # the second scored last, after each turn
    for _ in range(seconds):
        begun = time.process_time()
        snapshot = loop.turn()
        spent.append(time.process_time() - begun)
        scored.append(snapshot.scored.end_s if snapshot.scored else 0)
    warm = 2 * stride_s if stride_s > 1 else 5
    done, waits = 0.0, []
    for second in range(warm, seconds):
        done = max(done, float(second)) + spent[second]
        if scored[second] != scored[second - 1]:
            waits.append(done - second)
    load = float(np.sum(spent[warm:])) / (seconds - warm)
    threads = len(feed.names) * NODE_THREADS
    quiet = [s for k, s in enumerate(spent[warm:], warm) if scored[k] == scored[k - 1]]
    return {
        "threads": threads,
        "stride_s": stride_s,
        "load": load,
        "holds": threads / load,
        "ingest_s": float(np.median(quiet)) if quiet else float("nan"),
        "p99_s": float(np.quantile(waits, 0.99)) if waits else float("inf"),
        "scorings": len(waits),
        "stride_now_s": state.snapshot.stride_s,
        "events": float(sum(count for _, count in state.snapshot.opened_total)),
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--threads", type=int, nargs="+", default=[128, 1024, 10_240, 102_400])
    options.add_argument("--stride", type=int, nargs="+", default=[10])
    options.add_argument("--seconds", type=int, default=40)
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)
    small = ClusterSettings(nodes=VARIANTS, threads=NODE_THREADS, hours=0.5)
    traces = simulate(small, read_signatures(), 0)
    length = PAST_S + chosen.seconds
    traces = [
        replace(t, values=t.values[:, -length:], valid=t.valid[:, -length:], start_s=t.end_s - length) for t in traces
    ]
    texts, detector = [pages(trace, PAST_S) for trace in traces], bundled()
    rows = []
    for stride_s in chosen.stride:
        for threads in chosen.threads:
            with tempfile.TemporaryDirectory() as directory:
                feed = Exporters(traces, texts, max(threads // NODE_THREADS, 1))
                rows.append(run(detector, feed, stride_s, chosen.seconds, Path(directory)))
    if chosen.json:
        print(json.dumps(rows))
        return
    print(" threads  stride    load      holds     ingest   p99 wait  events    memory")
    for row in rows:
        print(
            f"{row['threads']:8,.0f} {row['stride_s']:5.0f} s {row['load']:7.1%} {row['holds']:10,.0f}"
            f" {row['ingest_s']:8.4f} s {row['p99_s']:8.3f} s {row['events']:7,.0f} {row['rss_mb']:6,.0f} MB"
        )


if __name__ == "__main__":
    main()
