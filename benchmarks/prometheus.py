"""Threads through a real Prometheus: simulated exporters, scraped once a second -> scores of the service that reads it.

    python benchmarks/prometheus.py [--threads 10240] [--stride 10] [--seconds 40] [--server prometheus] [--push]
                                    [--only-read [--parts 10] [--interval 10] [--match MATCHERS] [--remote-read]]
                                    [--json]

Prometheus (it must be installed; `--server victoria-metrics` takes VictoriaMetrics) scrapes simulated exporters of 128
threads, each with eight modes and its jobs, and with the series behind the channels of nodes and jobs. The service's
own loop reads it as `twin serve` with `kind = "prometheus"` does, scores all threads with all views and stores events.
All processes share the cores of this machine. The wait is the time from a thread's newest sample to its published
score. Prometheus is queried for whole seconds that are at least 2 s old.

With `--only-read` no loop runs: ranges of a stride's length are read one after the other and turned into traces. From
the CPU time of the server, that of the scrapes meanwhile is subtracted. With `--parts` the nodes are divided, as shards
with `source.match` divide them, and the parts are read in turn. With `--interval` the server scrapes once in so many
seconds, and a range is as many times longer: a read has as many samples as at one scrape a second, and the scrapes of a
cluster that is too large for this machine take a part of it only. With `--remote-read` the server also answers the same
query by remote read, as chunks and as samples; these answers are received and not decoded.

With `--push` Prometheus pushes by remote write to a real `twin serve`, whose CPU time and lag are measured: first until
it has a hundred seconds of data, so that it only takes in samples, then with all threads scored.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from threadpoolctl import threadpool_limits

from clustertwin.core.traces import Trace
from clustertwin.service.live.feeds.prometheus_feed import PrometheusFeed
from clustertwin.service.live.loop import Loop
from clustertwin.service.live.loop_settings import LoopSettings
from clustertwin.service.store.event_store import Store
from clustertwin.service.store.tokens import Tokens
from clustertwin.telemetry.detection.bundled import bundled
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.ingest.sources.prometheus import Prometheus
from clustertwin.telemetry.learning.champions.handover import Handover
from misbehaving_node import free_port
from prometheus_reads import Meter, Reads, cpu_s
from service import NODE_THREADS, PAST_S, WARM_S, BurstScorer, TimedState, WithPast, run_on_one_core, simulated
from simulated_exporters import full_pages, serve

SCRAPES = 15  # before the first measurement, and three more than a read needs
ALONE_S = 10  # the server is measured without a reader


class PrometheusWithPast(WithPast):
    """The feed of Prometheus, preceded by the simulated past of the nodes."""

    def begin(self, past: list[Trace]) -> list[Trace]:
        self.feed._until_s = self.begun_s
        for span in (span for trace in past for span in trace.spans):
            self.feed._starts[span.node, span.job, span.cpus] = span.start_s, float(self.begun_s)
        return past


def scrape_config(names: list[str], port: int, interval_s: int, push: dict[str, Any] | None = None) -> str:
    targets = [
        {
            "targets": [f"127.0.0.1:{port}"],
            "labels": {"__metrics_path__": f"/{name}/metrics", "instance": f"{name}:9752"},
        }
        for name in names
    ]
    every = {"scrape_interval": f"{interval_s}s", "scrape_timeout": f"{interval_s}s"}
    scrapes = [{"job_name": "twin", "static_configs": targets}]
    return json.dumps({"global": every, "scrape_configs": scrapes, "remote_write": [push] if push else []})


def command(server: str, config: Path, place: str, address: str) -> list[str]:
    if server == "prometheus":
        options = [f"--config.file={config}", f"--storage.tsdb.path={place}/data", "--log.level=error"]
        return ["prometheus", *options, f"--web.listen-address={address}"]
    options = [f"-promscrape.config={config}", f"-storageDataPath={place}/data", "-loggerLevel=ERROR"]
    limits = ["-search.maxUniqueTimeseries=3000000", "-search.latencyOffset=0s", "-search.disableCache"]
    return ["victoria-metrics", *options, *limits, f"-httpListenAddr={address}"]


def rss_mb(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def value(url: str, query: str) -> float:
    """The number that an instant query returns; NaN if there is none."""
    result = httpx.get(f"{url}/api/v1/query", params={"query": query}, timeout=60).json()["data"]["result"]
    return float(result[0]["value"][1]) if result else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=10_240)
    parser.add_argument("--stride", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--server", choices=["prometheus", "victoria-metrics"], default="prometheus")
    parser.add_argument("--push", action="store_true")
    parser.add_argument("--only-read", action="store_true")
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--interval", type=int, default=1)
    parser.add_argument("--match", default="")
    parser.add_argument("--remote-read", action="store_true")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    if not chosen.only_read and (chosen.parts, chosen.interval, chosen.match, chosen.remote_read) != (1, 1, "", False):
        parser.error("--parts, --interval, --match and --remote-read need --only-read")
    threadpool_limits(1)
    scraped_s, alone_s = SCRAPES * chosen.interval, max(ALONE_S, 2 * chosen.interval)
    names = [f"n{i:05d}" for i in range(max(chosen.threads // NODE_THREADS, 1))]
    simulated_traces = simulated(
        (1 + chosen.remote_read) * chosen.seconds + WARM_S + 10 * chosen.stride + scraped_s + alone_s + 120
    )
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        connection, far_end = get_context("spawn").Pipe()
        pages = [full_pages(trace, PAST_S) for trace in simulated_traces]
        exporters = get_context("spawn").Process(
            target=serve, args=(far_end, [], names, NODE_THREADS, None, pages), daemon=True
        )
        exporters.start()
        stack.callback(exporters.kill)
        exporters_port: int = connection.recv()
        begun_s = int(time.time()) + 1
        connection.send(begun_s)
        config = Path(place, "prometheus.yml")
        pushed = Pushed(Path(place, "home"), chosen.stride) if chosen.push else None
        if pushed:
            stack.enter_context(pushed)
        config.write_text(
            scrape_config(names, exporters_port, chosen.interval, pushed.remote_write if pushed else None)
        )
        url = f"http://127.0.0.1:{free_port()}"
        server = subprocess.Popen(command(chosen.server, config, place, url.removeprefix("http://")))
        stack.callback(server.wait)
        stack.callback(server.terminate)
        time.sleep(scraped_s)
        from_s, used_s, exporters_s = time.time(), cpu_s(server.pid), cpu_s(exporters.pid or 0)
        time.sleep(alone_s)
        passed_s = time.time() - from_s
        scrape_load = (cpu_s(server.pid) - used_s) / passed_s
        exporters_load = (cpu_s(exporters.pid or 0) - exporters_s) / passed_s
        row: dict[str, Any] = {"server": chosen.server, "threads": len(names) * NODE_THREADS, "nodes": len(names)}
        if pushed:
            measured = pushed.measure(chosen.seconds, server.pid)
        elif chosen.only_read:
            reads = Reads(url, Meter(server.pid, scrape_load), chosen.stride, chosen.interval)
            measured = reads.measure(names, chosen.parts, chosen.match, chosen.seconds)
            measured |= reads.measure_ways(chosen.seconds) if chosen.remote_read else {}
        else:
            measured = watch(url, names, simulated_traces, chosen, server, place)
        row |= measured | {
            "exporters_load": exporters_load,
            "server_load_without_reader": scrape_load,
            "server_mb": rss_mb(server.pid),
            "samples_of_a_scrape": value(url, "sum(scrape_samples_scraped)"),
            "scrapes_of_30_intervals": value(url, f"avg(count_over_time(up[{30 * chosen.interval}s]))"),
            "scraped_nodes": value(url, "sum(up)"),
            "slowest_scrape_s": value(url, "max(scrape_duration_seconds)"),
            "service_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "load_average": os.getloadavg()[0],
        }
    print(json.dumps(row) if chosen.json else "\n".join(f"{name:24} {number}" for name, number in row.items()))


class Pushed:
    """A `twin serve` that Prometheus pushes to."""

    def __init__(self, home: Path, stride_s: int) -> None:
        store = Store(home / "state.sqlite")
        tokens = Tokens(store.database)
        self.push_token, read = tokens.add("site", "push", time.time()), tokens.add("bench", "read", time.time())
        store.close()
        port = free_port()
        self.url, self.head = f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {read}"}
        self.config = home / "twin.toml"
        self.config.write_text(
            f'[service]\nport = {port}\nhome = "{home}"\n[source]\nkind = "remote-write"\n'
            f"[scoring]\nstride_s = {stride_s}\n"
        )

    @property
    def remote_write(self) -> dict[str, Any]:
        queue = {"batch_send_deadline": "1s", "max_samples_per_send": 5000, "capacity": 50_000}
        credentials = {"credentials": self.push_token}
        return {"url": f"{self.url}/api/v1/write", "authorization": credentials, "queue_config": queue}

    def __enter__(self) -> None:
        command = [sys.executable, "-m", "clustertwin", "serve", "--config", str(self.config), "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        while self.process.stdout.readline().rstrip() not in ("", "}"):
            pass

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def snapshot(self) -> dict[str, Any]:
        return httpx.get(f"{self.url}/api/v1/snapshot", headers=self.head, timeout=60).json()

    def measure(self, seconds: int, server: int) -> dict[str, Any]:
        ingest, _, server_load = self._loads(seconds, server)
        while self.snapshot()["phase"] != "watching":
            time.sleep(1)
        time.sleep(WARM_S)
        scoring, lags_s, _ = self._loads(seconds, server)
        nodes = httpx.get(f"{self.url}/api/v1/nodes", headers=self.head, timeout=60).json()
        return {
            "service_load_before_scoring": ingest,
            "service_load": scoring,
            "server_load_pushing": server_load,
            "lag_s": float(np.median(lags_s)),
            "longest_lag_s": max(lags_s),
            "watched_nodes": len(nodes),
            "scored_threads": sum(node["threads"] - node["unknown"] for node in nodes),
            "serve_mb": rss_mb(self.process.pid),
            "problems": self.snapshot()["problems"][:3],
        }

    def _loads(self, seconds: int, server: int) -> tuple[float, list[float], float]:
        begun_s, own_s, server_s, lags_s = time.time(), cpu_s(self.process.pid), cpu_s(server), []
        while time.time() - begun_s < seconds:
            time.sleep(1)
            lags_s.append(float(self.snapshot()["lag_s"]))
        passed_s = time.time() - begun_s
        return (cpu_s(self.process.pid) - own_s) / passed_s, lags_s, (cpu_s(server) - server_s) / passed_s


def watch(
    url: str, names: list[str], traces: list[Trace], chosen: argparse.Namespace, server: Any, place: str
) -> dict[str, Any]:
    home = Path(place)
    begun_s = int(time.time()) - 3
    handover: Future[Handover] = Future()
    handover.set_result(Handover(home, bundled()))
    state, stop = TimedState(home), threading.Event()
    feed = PrometheusFeed("prometheus", Prometheus(Endpoint(url, compressed=False), node_channels=True))
    past = PrometheusWithPast(feed, names, traces, begun_s)
    loop = Loop(state, past, handover, LoopSettings(stride_s=chosen.stride), score=BurstScorer())
    worker = threading.Thread(target=run_on_one_core, args=(loop, stop))
    worker.start()
    while not state.waits:
        time.sleep(0.1)
    time.sleep(max(WARM_S, chosen.stride + 2))
    from_s, own_s, server_s = time.time(), time.process_time(), cpu_s(server.pid)
    time.sleep(chosen.seconds)
    passed_s = time.time() - from_s
    loads = (time.process_time() - own_s) / passed_s, (cpu_s(server.pid) - server_s) / passed_s
    waits = [wait for when, wait in state.waits if when > from_s]
    last = state.snapshot
    stop.set()
    worker.join()
    state.store.close()
    known = int((~np.isnan(last.scores.score)).sum()) if last.scores is not None else 0
    return {
        "service_load": loads[0],
        "server_load": loads[1],
        "p50_s": float(np.median(waits)) if waits else None,
        "p99_s": float(np.quantile(waits, 0.99)) if waits else None,
        "scorings": len(waits),
        "scored_threads": known,
        "lag_s": last.lag_s,
        "stride_now_s": last.stride_s,
        "problems": last.problems[:3],
    }


if __name__ == "__main__":
    main()
