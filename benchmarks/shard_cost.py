"""What a service costs by CPU time, second by second: a figure that does not depend on how busy the machine is.

    python benchmarks/shard_cost.py [--threads 25600 25600 102400 204800] [--stride 10] [--seconds 40] [--json]
    python benchmarks/shard_cost.py --shards 40 --threads 25600 --seconds 20      # all shards of a million, in turn

As `service.py`, but the clock of the loop advances by one second with each turn, whenever the turn is done: simulated
exporters give the next second at each request, over HTTP, and the loop waits for all of them. Everything is read,
scored and stored as in real time. `load` is the CPU time of the service for each of these seconds, so 1 is a full core.
The wait of a score is the CPU time from the begin of its turn to its publication, and the age of its newest sample in
seconds of that clock: the wait on an idle core. The duration of a scoring, which sets the stride, is CPU time too.

Each row is measured in a fresh process and with another seed. A line is fitted to the rows of the smallest size and to
a quarter of it, and its prediction is printed beside the larger ones. With `--shards` every shard of a large site is
measured, one after the other, and the last line adds them up: what they need together, if each has its share of a core.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from clustertwin.service.live.feeds import exporter_feed
from clustertwin.service.live.feeds.exporter_feed import ExporterFeed, raise_file_limit
from clustertwin.service.live.loop import Loop
from clustertwin.service.live.loop_settings import LoopSettings
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.store.event_store import Store
from clustertwin.telemetry.detection.bundled import bundled
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.learning.champions.handover import Handover
from clustertwin.telemetry.moments.moment import WINDOW_S
from service import NODE_THREADS, PAST_S, WithPast, simulated
from simulated_exporters import ring, serve

WARM_TURNS = 15
PATIENCE_S = 300.0  # for exporters on a busy machine


class SteppedClock:
    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def measure(threads: int, stride_s: int, seconds: int, seed: int) -> dict[str, Any]:
    threadpool_limits(1)
    torch.set_num_threads(1)
    exporter_feed.ANSWER_S = PATIENCE_S  # type: ignore[attr-defined]
    traces = simulated(seconds + WARM_TURNS + 20, seed)
    names = [f"n{i:05d}" for i in range(max(threads // NODE_THREADS, 1))]
    connection, far_end = get_context("spawn").Pipe()
    rings = [ring(trace, PAST_S) for trace in traces]
    exporters = get_context("spawn").Process(
        target=serve, args=(far_end, rings, names, NODE_THREADS, None, None, True), daemon=True
    )
    exporters.start()
    port: int = connection.recv()
    raise_file_limit(len(names))
    begun_s = int(time.time())
    connection.send(begun_s)
    clock = SteppedClock(begun_s - 1.0)  # the first turn is at the time of the first sample
    urls = [f"http://127.0.0.1:{port}/{name}" for name in names]
    feed = ExporterFeed([Endpoint(url, deadline_s=PATIENCE_S) for url in urls], clock)
    handover: Future[Handover] = Future()
    with tempfile.TemporaryDirectory() as home:
        handover.set_result(Handover(Path(home), bundled()))
        state = ServiceState(Path(home), Store(Path(home) / "state.sqlite"))
        past = WithPast(feed, names, traces, begun_s)
        loop = Loop(state, past, handover, LoopSettings(stride_s=stride_s), clock=time.process_time)
        waits, turns, own_s, longest_s = [], 0, 0.0, 0.0
        scored = None
        for k in range(WARM_TURNS + seconds):
            clock.now_s += 1
            turn_s = time.process_time()
            snapshot = loop.turn()
            took_s = time.process_time() - turn_s
            if k >= WARM_TURNS:
                turns, own_s, longest_s = turns + 1, own_s + took_s, max(longest_s, took_s)
                if snapshot.scored is not scored and snapshot.scored is not None:
                    waits.append(took_s + max(clock.now_s - snapshot.scored.end_s, 0.0))
            scored = snapshot.scored
        exporters.kill()
        assert snapshot.scores is not None
        assert snapshot.scored is not None
        unknown = np.isnan(snapshot.scores.score)
        known = int((~unknown).sum())
        young = int((unknown & (snapshot.scored.age_s < WINDOW_S)).sum())
        row = {
            "threads": len(names) * NODE_THREADS,
            "load": own_s / turns,
            "p50_s": float(np.median(waits)),
            "p99_s": float(np.quantile(waits, 0.99)),
            "longest_turn_s": longest_s,
            "scorings": len(waits),
            "scored_threads": known,
            "unscored_young_threads": young,  # their job, or their idle time, is younger than a window
            "stride_now_s": snapshot.stride_s,
            "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "problems": snapshot.problems[:2],
            "load_average": os.getloadavg()[0],
        }
        state.store.close()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[25_600, 25_600, 102_400, 204_800])
    parser.add_argument("--stride", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0, help="of the first row; each further row adds one")
    parser.add_argument("--one", action="store_true", help="measure in this process and print a row as JSON")
    parser.add_argument("--shards", type=int, default=0, help="measure so many services of the first size, and add up")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(measure(chosen.threads[0], chosen.stride, chosen.seconds, chosen.seed)))
        return
    smallest = min(chosen.threads)
    sizes = chosen.threads[:1] * chosen.shards if chosen.shards else [smallest // 4, *chosen.threads]
    rows = []
    for i, threads in enumerate(sizes):  # each in a fresh process, for its memory
        command = [sys.executable, __file__, "--one", "--threads", str(threads), "--stride", str(chosen.stride)]
        command += ["--seconds", str(chosen.seconds), "--seed", str(chosen.seed + i)]
        rows.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
        if not chosen.json:
            print(_row(rows[-1], _line(rows, smallest) if threads > smallest else None), flush=True)
    if chosen.json:
        print(json.dumps(rows))
    elif chosen.shards:
        print(_together(rows))


def _together(rows: list[dict[str, Any]]) -> str:
    """What all rows need together, and the longest wait of any."""
    loads = [row["load"] for row in rows]
    return (
        f"{len(rows)} shards, {sum(row['threads'] for row in rows):,} threads: {sum(loads):.1f} cores "
        f"({min(loads):.1%} to {max(loads):.1%} each), {sum(row['rss_mb'] for row in rows) / 1024:.1f} GB, "
        f"longest p99 {max(row['p99_s'] for row in rows):.2f} s, {sum(row['scored_threads'] for row in rows):,} scored"
    )


def _line(rows: list[dict[str, Any]], largest: int) -> dict[str, tuple[float, float]]:
    """A constant and a part for each thread, fitted to services of at most this size."""
    fitted = [row for row in rows if row["threads"] <= largest]
    threads = [row["threads"] for row in fitted]
    lines = {name: np.polyfit(threads, [row[name] for row in fitted], 1) for name in ("load", "rss_mb")}
    return {name: (float(line[1]), float(line[0])) for name, line in lines.items()}


def _row(row: dict[str, Any], line: dict[str, tuple[float, float]] | None) -> str:
    text = (
        f"| {row['threads']:,} | {row['load']:.1%} | {row['p50_s']:.2f} s | {row['p99_s']:.2f} s | {row['scorings']} "
        f"| {row['rss_mb']:,.0f} MB | {row['stride_now_s']} s | {row['scored_threads']:,} |"
    )
    if line is not None:
        load, memory = (line[name][0] + line[name][1] * row["threads"] for name in ("load", "rss_mb"))
        text += f" predicted {load:.1%}, {memory:,.0f} MB"
    return text + (f" {row['problems'][0]}" if row["problems"] else "")


if __name__ == "__main__":
    main()
