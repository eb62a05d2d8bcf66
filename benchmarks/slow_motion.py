"""How late scores are if a cluster too large for this machine is read through a real Prometheus, in slow motion.

    python benchmarks/slow_motion.py [--threads 102400] [--parts 10] [--slow 12] [--stride 10] [--seconds 20] [--json]

A second of the simulated cluster lasts `slow` seconds. Its exporters answer with the times of the cluster, and a real
Prometheus scrapes each of them once a second of the cluster. As many services as there are parts read it, each its own
nodes, as `source.match` divides them; they score all threads with all views and store events. Only what computes is
real: each read and each turn of a loop is extended until it has taken as many seconds of the cluster as it took real
seconds. So the wait, from a thread's newest sample to its published score, is that of a machine in real time with as
many cores of this speed as are needed. Cores are CPU time divided by seconds of the cluster. All processes share the
cores of this machine: where they wait for each other, reads and turns are longer than they would be.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from clustertwin.core.traces import Trace
from clustertwin.service.live.feeds.prometheus_feed import LONGEST_REST_S, PrometheusFeed
from clustertwin.service.live.loop import Loop
from clustertwin.service.live.loop_settings import LoopSettings
from clustertwin.service.live.snapshot import ServiceState, Snapshot
from clustertwin.service.store.event_store import Store
from clustertwin.telemetry.detection.bundled import bundled
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.ingest.rates import Faults
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.ingest.sources.prometheus import Prometheus
from clustertwin.telemetry.learning.champions.handover import Handover
from misbehaving_node import free_port
from prometheus import PrometheusWithPast, command, rss_mb, scrape_config, value
from prometheus_reads import cpu_s, instances
from service import NODE_THREADS, PAST_S, VARIANTS, run_on_one_core, simulated
from simulated_exporters import full_pages, serve

SCRAPED_S = 15  # before services read
WARM_S = 15  # of scoring before the measurement
ALONE_S = 5  # the server is measured without a reader


@dataclass(frozen=True, slots=True)
class SlowClock:
    """The time of the cluster."""

    begun_s: float
    slow: float

    def __call__(self) -> float:
        return self.begun_s + (time.time() - self.begun_s) / self.slow

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds * self.slow)

    def extend(self, real_s: float) -> None:
        """Wait until what took so many real seconds has taken as many of the cluster."""
        time.sleep(real_s * (self.slow - 1))


class SlowFeed(PrometheusFeed):
    """A read takes as many seconds of the cluster as it took real seconds."""

    def __init__(self, history: Prometheus, clock: SlowClock) -> None:
        super().__init__("prometheus", history, clock)
        self.pace, self._slow = 1 / clock.slow, clock
        self.reads_s: list[tuple[float, float]] = []  # when, and real seconds

    def _ask(self, start_s: float, end_s: float) -> tuple[list[Trace], Faults]:
        begun_s = time.monotonic()
        try:
            return super()._ask(start_s, end_s)
        finally:
            self._took_s = time.monotonic() - begun_s
            self.reads_s.append((self._clock(), self._took_s))
            self._slow.extend(self._took_s)


class SlowState(ServiceState):
    """Measures when each scoring is published."""

    def __init__(self, home: Path, clock: SlowClock) -> None:
        super().__init__(home, Store(home / "state.sqlite"))
        self.clock, self.turn_begun_s = clock, 0.0
        self.waits: list[tuple[float, float]] = []  # (when, time since the sample)

    def publish(self, snapshot: Snapshot, detector: Detector | None) -> None:
        scored = self.snapshot.scored
        super().publish(snapshot, detector)
        took_s = time.monotonic() - self.turn_begun_s
        now_s = self.clock() + took_s * (1 - 1 / self.clock.slow)
        if snapshot.scored is not scored and snapshot.scored is not None:
            self.waits.append((now_s, now_s - snapshot.scored.end_s))


class SlowLoop(Loop):
    """A turn takes as many seconds of the cluster as it took real seconds."""

    state: SlowState

    def turn(self) -> Snapshot:
        self.state.turn_begun_s = time.monotonic()
        snapshot = super().turn()
        self.state.clock.extend(time.monotonic() - self.state.turn_begun_s)
        return snapshot


def watch(parent: Connection, url: str, names: list[str], clock: SlowClock, stride_s: int, seconds: int) -> None:
    """One service, in a process of its own. It begins to measure when the parent says so, and sends a row."""
    threadpool_limits(1)
    traces = simulated(seconds)
    handover: Future[Handover] = Future()
    with tempfile.TemporaryDirectory() as place:
        handover.set_result(Handover(Path(place), bundled()))
        state, stop = SlowState(Path(place), clock), threading.Event()
        endpoint = Endpoint(url, deadline_s=120.0, compressed=False)
        feed = SlowFeed(Prometheus(endpoint, node_channels=True, matchers=instances(names)), clock)
        parent.send(None)
        parent.recv()
        begun_s = int(clock()) - 3
        past = PrometheusWithPast(feed, names, traces, begun_s)
        passed_s = begun_s - int(clock.begun_s)  # of the pages of the exporters
        later = [
            replace(t, values=t.values[:, passed_s:], valid=t.valid[:, passed_s:], start_s=t.start_s + passed_s)
            for t in traces
        ]
        past.nodes = [(name, later[int(name[1:]) % VARIANTS]) for name in names]
        loop = SlowLoop(state, past, handover, LoopSettings(stride_s=stride_s))
        worker = threading.Thread(target=run_on_one_core, args=(loop, stop))
        worker.start()
        while not state.waits:
            time.sleep(0.1)
        parent.send(None)
        measured_s = parent.recv()
        from_s, own_s = clock(), time.process_time()
        clock.sleep(measured_s)
        used_s, until_s = time.process_time() - own_s, clock()
        last = state.snapshot
        parent.send(
            {
                "load": used_s / (until_s - from_s),
                "waits_s": [wait for when, wait in state.waits if from_s < when <= until_s],
                "reads_s": [took for when, took in feed.reads_s if when > from_s],
                "scoring_s": last.scoring_s,
                "stride_s": last.stride_s,
                "scored": int((~np.isnan(last.scores.score)).sum()) if last.scores is not None else 0,
                "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "problems": last.problems[:3],
            }
        )
        stop.set()
        worker.join()
        state.store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=102_400)
    parser.add_argument("--parts", type=int, default=10)
    parser.add_argument("--slow", type=int, default=12)
    parser.add_argument("--stride", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=20, help="of the cluster")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    names = [f"n{i:05d}" for i in range(max(chosen.threads // NODE_THREADS, chosen.parts))]
    length_s = SCRAPED_S + ALONE_S + WARM_S + chosen.seconds + 10 * chosen.stride + 120
    spawn = get_context("spawn")
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        connection, far_end = spawn.Pipe()
        pages = [full_pages(trace, PAST_S) for trace in simulated(length_s)]
        exporters = spawn.Process(
            target=serve, args=(far_end, [], names, NODE_THREADS, None, pages, False, chosen.slow), daemon=True
        )
        exporters.start()
        stack.callback(exporters.kill)
        config = Path(place, "prometheus.yml")
        config.write_text(scrape_config(names, connection.recv(), chosen.slow))
        clock = SlowClock(int(time.time()) + 1, chosen.slow)
        connection.send(clock.begun_s)
        url = f"http://127.0.0.1:{free_port()}"
        server = subprocess.Popen(command("prometheus", config, place, url.removeprefix("http://")))
        stack.callback(server.wait)
        stack.callback(server.terminate)
        clock.sleep(SCRAPED_S)
        alone = Loads(clock, server.pid, exporters.pid or 0)
        clock.sleep(ALONE_S)
        scraping = alone.cores()
        rows, loads = measure(spawn, url, names, chosen, clock, length_s, lambda: Loads(clock, server.pid))
        waits = [wait for row in rows for wait in row["waits_s"]]
        if not waits:
            raise SystemExit(f"no thread was scored in {chosen.seconds} s: {[row['problems'] for row in rows]}")
        reads = [took for row in rows for took in row["reads_s"]]
        row = {
            "threads": len(names) * NODE_THREADS,
            "services": len(rows),
            "slow": chosen.slow,
            "p50_s": float(np.median(waits)),
            "p99_s": float(np.quantile(waits, 0.99)),
            "longest_s": max(waits),
            "scorings": len(waits),
            "scored_threads": sum(row["scored"] for row in rows),
            "read_p50_s": float(np.median(reads)),
            "read_p99_s": float(np.quantile(reads, 0.99)),
            "longest_scoring_s": max(row["scoring_s"] for row in rows),
            "longest_stride_s": max(row["stride_s"] for row in rows),
            "services_cores": sum(row["load"] for row in rows),
            "server_cores": loads[0],
            "server_cores_scraping_only": scraping[0],
            "exporters_cores": scraping[1],
            "services_mb": sum(row["mb"] for row in rows),
            "server_mb": rss_mb(server.pid),
            "scraped_nodes": value(url, "sum(up)"),
            "scrapes_of_30": value(url, f"avg(count_over_time(up[{30 * chosen.slow}s]))"),
            "problems": [problem for row in rows for problem in row["problems"]][:3],
            "load_average": os.getloadavg()[0],
        }
    print(json.dumps(row) if chosen.json else "\n".join(f"{name:26} {number}" for name, number in row.items()))


class Loads:
    """CPU time of processes since it was made, in cores of a cluster in real time."""

    def __init__(self, clock: SlowClock, *pids: int) -> None:
        self._clock, self._pids = clock, pids
        self._from_s, self._used_s = clock(), [cpu_s(pid) for pid in pids]

    def cores(self) -> list[float]:
        passed_s = self._clock() - self._from_s
        return [(cpu_s(pid) - used_s) / passed_s for pid, used_s in zip(self._pids, self._used_s, strict=True)]


def measure(
    spawn: Any,
    url: str,
    names: list[str],
    chosen: argparse.Namespace,
    clock: SlowClock,
    length_s: int,
    loads_of: Callable[[], Loads],
) -> tuple[list[dict[str, Any]], list[float]]:
    """Start a service for each part, then measure all of them together."""
    pipes = []
    for part in range(chosen.parts):
        ours, theirs = spawn.Pipe()
        own = names[part :: chosen.parts]
        spawn.Process(target=watch, args=(theirs, url, own, clock, chosen.stride, length_s), daemon=True).start()
        pipes.append(ours)
    for pipe in pipes:
        pipe.recv()  # it has loaded what it needs
    for pipe in pipes:  # services of a real site do not read in step either
        pipe.send(None)
        clock.sleep(LONGEST_REST_S / len(pipes))
    for pipe in pipes:
        pipe.recv()  # it has scored once
    clock.sleep(WARM_S)
    loads = loads_of()
    for pipe in pipes:
        pipe.send(chosen.seconds)
    clock.sleep(chosen.seconds)
    cores = loads.cores()
    return [pipe.recv() for pipe in pipes], cores


if __name__ == "__main__":
    main()
