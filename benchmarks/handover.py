"""Measure the change to a new champion while a cluster is scored each second: seconds lost, seconds scored twice.

    python benchmarks/handover.py [--threads 20480] [--seconds 30] [--json]

Each second, the traces of all threads go into the buffer and the current champion scores them with all views, while
another process promotes one of two champions. Every second must be scored exactly once, and all scores of a second must
be bit-identical to those of one of the two champions. "behind" is the time from the start of a second to its scores; it
grows without limit if scoring is too slow.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import queue
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from clustertwin.core.channels import CPU
from clustertwin.core.traces import Trace
from clustertwin.telemetry.detection.calibration import calibrate
from clustertwin.telemetry.detection.detector import Detector, DetectorSettings
from clustertwin.telemetry.learning.champions import champion_store, version_store
from clustertwin.telemetry.learning.champions.fencing_lock import next_fence
from clustertwin.telemetry.learning.champions.handover import Handover
from clustertwin.telemetry.models import DEFAULT, find
from clustertwin.telemetry.models.model_store import read, save
from clustertwin.telemetry.moments.moment import LENGTH_S, moments
from clustertwin.telemetry.moments.trace_buffer import TraceBuffer
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate

SMALL = ClusterSettings(nodes=4, threads=128, hours=0.5)  # simulated once; the cluster consists of copies of it


def promote_in_turn(home: str, versions: list[str], ready: threading.Event, count: int) -> None:
    ready.set()
    for i in range(count):
        time.sleep(1)
        champion_store.promote(
            Path(home), versions[i % len(versions)], next_fence(Path(home)), "benchmark", time.time()
        )


def tick(calls: queue.Queue[tuple[int, float]], seconds: int) -> None:
    began_s = time.perf_counter()
    for number in range(seconds):
        calls.put((number, time.perf_counter()))
        time.sleep(max(began_s + number + 1 - time.perf_counter(), 0))
    calls.put((-1, 0.0))


def repeated(traces: list[Trace], threads: int) -> list[Trace]:
    """Copies of the same nodes, each with its own jobs."""
    copies = -(-threads // sum(len(trace.cpus) for trace in traces))
    return [
        replace(
            trace,
            node=f"{trace.node}.{copy}",
            spans=tuple(replace(span, node=f"{trace.node}.{copy}", job=f"{span.job}.{copy}") for span in trace.spans),
        )
        for copy in range(copies)
        for trace in traces
    ]


def between(traces: list[Trace], first: int, end: int) -> Iterator[Trace]:
    for trace in traces:
        values, valid = trace.values[:, first:end], trace.valid[:, first:end]
        yield replace(trace, start_s=trace.start_s + first, values=values, valid=valid)


def two_champions(home: Path, traces: list[Trace]) -> list[str]:
    """Two detectors with untrained models of different seeds, so that their scores differ."""
    normal = [moment for moment, _ in moments(traces, every_s=200)]
    versions = []
    for seed in range(2):
        torch.manual_seed(seed)
        config, network = find(DEFAULT)
        save(home / f"m{seed}", DEFAULT, network(config()))
        versions.append(
            version_store.add_version(home, calibrate(read(home / f"m{seed}"), normal, DetectorSettings(seed=seed)), {})
        )
    return versions


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--threads", type=int, default=20_480)
    options.add_argument("--seconds", type=int, default=30)
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    traces = simulate(SMALL, read_signatures(), 0)
    cluster, buffer = repeated(traces, chosen.threads), TraceBuffer(CPU)
    for trace in between(cluster, 0, LENGTH_S):
        buffer.push(trace)
    first_s = traces[0].start_s + LENGTH_S
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        versions = two_champions(home, traces)
        handover = Handover(home, version_store.read_version(home, versions[0]))
        handover.detector.score(buffer.moment(first_s))  # compile before measuring
        spawn, calls = multiprocessing.get_context("spawn"), queue.Queue[tuple[int, float]]()
        ready = spawn.Event()
        other = spawn.Process(target=promote_in_turn, args=(scratch, versions[::-1], ready, chosen.seconds))
        other.start()
        ready.wait()
        threading.Thread(target=tick, args=(calls, chosen.seconds), daemon=True).start()
        scored, polls, behind, busy = [], [], [], []
        began_s = time.perf_counter()
        while (call := calls.get())[0] >= 0:
            number, called_s = call
            begun_s = time.perf_counter()
            for trace in between(cluster, LENGTH_S + number, LENGTH_S + number + 1):
                buffer.push(trace)
            polled_s = time.perf_counter()
            detector = handover.poll()
            polls.append(time.perf_counter() - polled_s)
            moment = buffer.moment(first_s + number + 1)
            scored.append((moment, detector.version, detector.score(moment).score))
            behind.append(time.perf_counter() - called_s)
            busy.append(time.perf_counter() - begun_s)
        took_s = time.perf_counter() - began_s
        other.join()
        champions: dict[str, Detector] = {version: version_store.read_version(home, version) for version in versions}
        mixed = sum(not np.array_equal(score, champions[v].score(m).score, equal_nan=True) for m, v, score in scored)
    times = Counter(moment.end_s for moment, _, _ in scored)
    windows = sum(len(score) for _, _, score in scored)
    report = {
        "threads": len(scored[0][0]),
        "seconds": chosen.seconds,
        "windows_per_s": windows / took_s,
        "most_per_s": windows / sum(busy),
        "lost": chosen.seconds - len(times),
        "twice": sum(n > 1 for n in times.values()),
        "mixed": mixed,
        "taken": handover.taken,
        "refused": handover.refused,
        "models": len({version for _, version, _ in scored}),
        "poll_us": 1e6 * float(np.median(polls)),
        "take_over_ms": 1e3 * max(polls),
        "behind_s": [float(np.median(behind)), max(behind)],
    }
    if chosen.json:
        print(json.dumps(report))
        return
    print(
        f"{report['seconds']} seconds of {report['threads']:,} windows: {report['windows_per_s']:,.0f} per second,"
        f" {report['most_per_s']:,.0f} without pauses\n"
        f"{report['lost']} lost, {report['twice']} scored twice, {report['mixed']} scored by more than one model\n"
        f"{report['taken']} changes of champion, {report['models']} models used, {report['refused']} refused\n"
        f"poll: median {report['poll_us']:.0f} µs, with a change of champion at most {report['take_over_ms']:.0f} ms\n"
        f"behind: median {np.median(behind):.2f} s, at most {max(behind):.2f} s"
    )


if __name__ == "__main__":
    main()
