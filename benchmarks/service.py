"""How many threads the live loop can handle on one core: simulated exporters, queried over HTTP -> scores and events.

    python benchmarks/service.py [--threads 128 1024 10240 102400] [--stride 10] [--seconds 40] [--seed 0] [--burst]
                                 [--anywhere] [--port P] [--begin-at UNIX_S] [--json]

The service's own loop runs in real time on one core. As `twin serve` with `kind = "exporters"` does, it queries the
counters of every node once a second and turns them into ratios. Every `stride` seconds it scores all threads with all
views of the bundled detector, and updates, explains and stores events. The exporters run on another core; the jobs on
their nodes are simulated and normal. `load` is the CPU time of the service's process per second. The wait is the time
from a thread's newest sample to its published score; a large cluster is scored in several turns. If the stride differs
from the requested one, the loop has raised it. With `--burst`, every job becomes anomalous at the end; jobs of one node
are one event. With `--anywhere` no process is bound to a core, so that other programs on the machine are not disturbed.
With `--port` the pages and the API are served too, as in `twin serve`; with `--begin-at` the exporters begin at that
time, so that several services can begin together.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, replace
from math import inf
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from clustertwin.core.traces import Trace
from clustertwin.service.live.feeds.exporter_feed import ExporterFeed, raise_file_limit
from clustertwin.service.live.loop import Loop
from clustertwin.service.live.loop_settings import LoopSettings
from clustertwin.service.live.scorer import InProcessScorer
from clustertwin.service.live.snapshot import ServiceState, Snapshot
from clustertwin.service.store.event_store import Store
from clustertwin.telemetry.detection.bundled import bundled
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.ingest.counters import JobCpus
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.learning.champions.handover import Handover
from clustertwin.telemetry.moments.moment import Moment
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate
from simulated_exporters import ring, serve

NODE_THREADS = 128
VARIANTS = 8  # simulated nodes; the cluster repeats them
PAST_S = 300
WARM_S = 12  # from the start to the measurement


def past_of(trace: Trace, node: str, begun_s: int) -> Trace:
    """The first PAST_S of a simulated trace, as what another node did until `begun_s`."""
    later_s = begun_s - PAST_S - trace.start_s
    spans = tuple(
        replace(span, node=node, job=f"{node}-{span.job}", start_s=span.start_s + later_s, end_s=span.end_s + later_s)
        for span in trace.spans
        if span.start_s + later_s < begun_s
    )
    values, valid = trace.values[:, :PAST_S], trace.valid[:, :PAST_S]
    return replace(trace, node=node, start_s=begun_s - PAST_S, values=values, valid=valid, spans=spans)


class WithPast:
    """The feed of exporters, preceded by the simulated past of the nodes."""

    def __init__(self, feed: Any, names: list[str], traces: list[Trace], begun_s: int) -> None:
        self.feed, self.begun_s = feed, begun_s
        self.source, self.pace, self.patient, self.close = feed.source, feed.pace, feed.patient, feed.close
        self.nodes = [(name, traces[i % VARIANTS]) for i, name in enumerate(names)]
        self.begun = False

    def now_s(self) -> float:
        """Reading the past of many threads takes seconds; until then the clock stands still."""
        return max(self.feed.now_s(), float(self.begun_s))

    @property
    def faults(self) -> Any:
        return self.feed.faults

    @property
    def problems(self) -> tuple[str, ...]:
        return self.feed.problems

    def take(self) -> list[Trace]:
        if self.begun:
            return self.feed.take()
        self.begun = True
        return self.begin([past_of(trace, name, self.begun_s) for name, trace in self.nodes])

    def begin(self, past: list[Trace]) -> list[Trace]:
        """Wait for every exporter, and tell the feed when the jobs of the past started.

        A stream that begins during a job does not know its start, and would not score the job for 100 s.
        """
        self.feed.take()
        while self.feed.problems:
            self.feed.take()
        for stream, trace in zip(self.feed._streams, past, strict=True):
            stream._rates._since_s = {JobCpus(span.job, span.cpus): span.start_s for span in trace.spans}
        return past


class BurstScorer:
    """A scorer that, when `anomalous` is set, gives a high score to the threads of every job."""

    def __init__(self) -> None:
        self.anomalous, self.state, self.close = threading.Event(), InProcessScorer.state, lambda: None

    def __call__(self, detector: Detector, moment: Moment) -> Scores:
        scores = detector.score(moment)
        if not self.anomalous.is_set():
            return scores
        return replace(scores, score=np.where(moment.job >= 0, np.float32(20), scores.score))


class TimedState(ServiceState):
    """Measures when each scoring is published."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, Store(home / "state.sqlite"))
        self.waits: list[tuple[float, float]] = []  # (time of publication, time since the sample)

    def publish(self, snapshot: Snapshot, detector: Detector | None) -> None:
        scored = self.snapshot.scored
        super().publish(snapshot, detector)
        now_s = time.time()
        if snapshot.scored is not scored and snapshot.scored is not None:
            self.waits.append((now_s, now_s - snapshot.scored.end_s))


@dataclass(frozen=True, slots=True)
class Row:
    threads: int
    stride_s: int
    load: float  # of a core
    p50_s: float
    p99_s: float
    scorings: int
    stride_now_s: int
    stride_why: str
    events: int
    burst: int  # events that opened in the burst
    kept: int  # … of these, events that are in the store
    rss_mb: float


def run_on_one_core(loop: Loop, stop: threading.Event) -> None:
    """As in the service: torch.set_num_threads applies only to the thread that calls it."""
    torch.set_num_threads(1)
    loop.run(stop)


def serve_pages(state: ServiceState, port: int) -> None:
    """Serve the pages and the API in a thread, until the process ends."""
    import uvicorn

    from clustertwin.service.application import create_app

    server = uvicorn.Server(uvicorn.Config(create_app(state), port=port, log_level="warning", ws="none"))
    threading.Thread(target=server.run, daemon=True).start()


def run(
    detector: Detector,
    traces: list[Trace],
    threads: int,
    stride_s: int,
    seconds: int,
    burst: bool,
    home: Path,
    anywhere: bool = False,
    port: int = 0,
    begin_at_s: int = 0,
) -> Row:
    names = [f"n{i:05d}" for i in range(max(threads // NODE_THREADS, 1))]
    cores = sorted(os.sched_getaffinity(0))
    if anywhere:
        cores = []
    connection, exporters_end = get_context("spawn").Pipe()
    rings = [ring(trace, PAST_S) for trace in traces]
    exporters = get_context("spawn").Process(
        target=serve,
        args=(exporters_end, rings, names, NODE_THREADS, cores[-1] if len(cores) > 1 else None),
        daemon=True,
    )
    exporters.start()
    exporters_port: int = connection.recv()
    raise_file_limit(len(names))
    begun_s = max(int(time.time()) + 3 + threads // 6000, begin_at_s)
    connection.send(begun_s)
    feed = ExporterFeed([Endpoint(f"http://127.0.0.1:{exporters_port}/{name}", deadline_s=5.0) for name in names])
    handover: Future[Handover] = Future()
    handover.set_result(Handover(home, detector))
    state, scorer, stop = TimedState(home), BurstScorer(), threading.Event()
    if port:
        serve_pages(state, port)
    if len(cores) > 1:
        os.sched_setaffinity(0, {cores[0]})
    loop = Loop(state, WithPast(feed, names, traces, begun_s), handover, LoopSettings(stride_s=stride_s), score=scorer)
    worker = threading.Thread(target=run_on_one_core, args=(loop, stop))
    worker.start()
    try:
        while not state.waits:
            time.sleep(0.1)
        time.sleep(max(WARM_S, stride_s + 2))
        from_s, cpu_s = time.time(), time.process_time()
        time.sleep(seconds)
        load = (time.process_time() - cpu_s) / (time.time() - from_s)
        waits = [wait for when, wait in state.waits if when > from_s]
        before = _opened(state)
        if burst:
            scorer.anomalous.set()
            time.sleep(4 * max(stride_s, state.snapshot.stride_s) + 5)
    finally:
        stop.set()
        worker.join()
        exporters.kill()
        exporters.join()
        if cores:
            os.sched_setaffinity(0, cores)
    stored = state.store.count() - before
    state.store.close()
    return Row(
        threads=len(names) * NODE_THREADS,
        stride_s=stride_s,
        load=load,
        p50_s=float(np.median(waits)) if waits else inf,
        p99_s=float(np.quantile(waits, 0.99)) if waits else inf,
        scorings=len(waits),
        stride_now_s=state.snapshot.stride_s,
        stride_why=state.snapshot.stride_why,
        events=before,
        burst=_opened(state) - before,
        kept=stored,
        rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def _opened(state: ServiceState) -> int:
    return sum(count for _, count in state.snapshot.opened_total)


def simulated(seconds: int, seed: int = 0) -> list[Trace]:
    """Nodes with a past of PAST_S and `seconds` of data after it."""
    settings = ClusterSettings(nodes=VARIANTS, threads=NODE_THREADS, hours=(PAST_S + seconds + 1200) / 3600)
    length = PAST_S + seconds
    return [
        replace(t, values=t.values[:, -length:], valid=t.valid[:, -length:], start_s=t.end_s - length)
        for t in simulate(settings, read_signatures(), seed)
    ]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--threads", type=int, nargs="+", default=[128, 1024, 10_240, 102_400])
    options.add_argument("--stride", type=int, nargs="+", default=[10])
    options.add_argument("--seconds", type=int, default=40)
    options.add_argument("--seed", type=int, default=0, help="of the simulated jobs")
    options.add_argument("--burst", action="store_true")
    options.add_argument("--anywhere", action="store_true")
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--begin-at", type=int, default=0)
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    threadpool_limits(1)
    longest_s = chosen.seconds + WARM_S + 10 * max(chosen.stride) + 60
    traces, detector = simulated(longest_s, chosen.seed), bundled()
    rows = []
    for stride_s in chosen.stride:
        for threads in chosen.threads:
            with tempfile.TemporaryDirectory() as home:
                rows.append(
                    run(
                        detector, traces, threads, stride_s, chosen.seconds, chosen.burst, Path(home), chosen.anywhere,
                        chosen.port, chosen.begin_at,
                    )
                )  # fmt: skip
    if chosen.json:
        print(json.dumps([{name: getattr(row, name) for name in Row.__slots__} for row in rows]))
        return
    print(" threads wanted    now     load  median wait  p99 wait  scorings  events     burst    memory")
    for row in rows:
        print(
            f"{row.threads:8,} {row.stride_s:4} s {row.stride_now_s:4} s {row.load:8.1%} {row.p50_s:10.2f} s"
            f" {row.p99_s:7.2f} s {row.scorings:9} {row.events:7,} {row.kept:5,}/{row.burst:5,} {row.rss_mb:6,.0f} MB"
            + (f"   {row.stride_why}" if row.stride_now_s != row.stride_s else "")
        )


if __name__ == "__main__":
    main()
