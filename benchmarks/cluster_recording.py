"""What the recording of a cluster costs: simulated seconds of many nodes -> CPU time, waiting for the disk, bytes.

    python benchmarks/cluster_recording.py [--nodes 100] [--threads 64] [--minutes 10] [--home DIR]

The traces are those that a service of exporters gets: one for each node and second. The threads are simulated, and a
few nodes are repeated under other names; the channels of nodes and jobs are random walks. The clock advances as fast as
the recorder is, and passes a full hour in the middle, when the chunks of all nodes are written. What is measured is the
work of the thread that records, and the time in which the loop hands its traces over.
"""

from __future__ import annotations

import argparse
import re
import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from clustertwin.core.channels import JOB, NODE
from clustertwin.core.traces import JobChannels, NodeChannels, Trace
from clustertwin.service.live.beside.joined_traces import joined
from clustertwin.service.live.beside.recording_thread import COLLECTED_S, RecordingThread
from clustertwin.service.live.live_recorder import LiveRecorder
from clustertwin.service.serving import CLUSTER_FLUSH_S
from clustertwin.telemetry.recording import Recording
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate

VARIANTS = 4  # nodes that are simulated
HOUR_S = 3600
BEGIN_S = 1_700_000_000 // HOUR_S * HOUR_S


class Cluster:
    """Gives the seconds of simulated nodes, one trace for each node and second."""

    def __init__(self, nodes: int, threads: int, seconds: int, start_s: int) -> None:
        settings = ClusterSettings(nodes=VARIANTS, threads=threads, hours=(seconds + 1800) / HOUR_S)
        self._variants = simulate(settings, read_signatures(), 0)
        self._names = [f"n{i:04d}" for i in range(nodes)]
        self._start_s = start_s
        rng = np.random.default_rng(0)
        walk = np.cumsum(rng.normal(0, 0.01, (seconds, 16, max(len(NODE), len(JOB)))), axis=0)
        self._walk = (np.sin(walk) / 2 + 0.5).astype(np.float32)  # (second, variant, channel)

    def second(self, k: int) -> list[Trace]:
        return [self._trace(i, name, k) for i, name in enumerate(self._names)]

    def _trace(self, i: int, name: str, k: int) -> Trace:
        whole = self._variants[i % VARIANTS]
        at = k + 60 * (i // VARIANTS) % 1200  # other minutes on each of the repeated nodes
        now_s = whole.start_s + at
        spans = tuple(
            replace(span, node=name, start_s=self._start_s + k - (now_s - span.start_s), end_s=self._start_s + k + 1)
            for span in whole.spans
            if span.start_s <= now_s < span.end_s
        )
        jobs = tuple(dict.fromkeys(f"{name}-{span.job}" for span in spans))
        row = self._walk[k, i % 16]
        return replace(
            whole,
            node=name,
            start_s=self._start_s + k,
            values=whole.values[:, at : at + 1].copy(),
            valid=whole.valid[:, at : at + 1].copy(),
            spans=tuple(replace(span, job=f"{name}-{span.job}") for span in spans),
            node_channels=NodeChannels(NODE, row[None, : len(NODE)]),
            job_channels=JobChannels(JOB, jobs, np.tile(row[: len(JOB)], (len(jobs), 1, 1))) if jobs else None,
        )


def measure(directory: Path, nodes: int, threads: int, seconds: int) -> None:
    start_s = BEGIN_S + HOUR_S - seconds // 2
    cluster = Cluster(nodes, threads, seconds, start_s)
    clock_s = 0.0
    recorder = LiveRecorder(directory, 7 * 86_400, clock=lambda: clock_s, flush_s=CLUSTER_FLUSH_S)
    cpu_s, longest_s, at_the_hour_s = 0.0, 0.0, 0.0
    begun_s = time.perf_counter()
    made_s = 0.0
    step = round(COLLECTED_S)
    for k in range(0, seconds, step):
        clock_s = float(k)
        making_s = time.perf_counter()
        traces = [trace for i in range(k, min(k + step, seconds)) for trace in cluster.second(i)]
        made_s += time.perf_counter() - making_s
        turn_s, thread_s = time.perf_counter(), time.thread_time()
        for trace in joined(traces):
            recorder.add(trace)
        cpu_s += time.thread_time() - thread_s
        took_s = time.perf_counter() - turn_s
        is_hour = start_s + k < BEGIN_S + HOUR_S <= start_s + k + step
        at_the_hour_s, longest_s = (took_s, longest_s) if is_hour else (at_the_hour_s, max(longest_s, took_s))
    wall_s = time.perf_counter() - begun_s - made_s
    turn_s = time.perf_counter()
    recorder.close()
    closed_s = time.perf_counter() - turn_s
    assert (recorder.lost, recorder.problem) == (0, ""), recorder.problem
    turn_s = time.perf_counter()
    again = LiveRecorder(directory, 7 * 86_400, clock=lambda: clock_s, flush_s=CLUSTER_FLUSH_S)
    again.add(replace(cluster.second(0)[0], start_s=start_s + seconds))
    resumed_s = time.perf_counter() - turn_s
    again.close()
    recording, files = Recording.open(directory), [path for path in directory.rglob("*") if path.is_file()]
    known = sum(int(recording.trace(node).valid.sum()) for node in recording.nodes)
    of_jobs = sum(path.stat().st_size for path in files if "!jobs" in path.parent.name)
    of_nodes = sum(path.stat().st_size for path in files if re.search(r"!\d", path.parent.name))
    of_threads = recording.size_bytes - of_jobs - of_nodes
    turn_s = time.perf_counter()
    middle_s = start_s + seconds // 2
    read = [recording.trace(node, middle_s - 150, middle_s + 150) for node in recording.nodes]
    read_s = time.perf_counter() - turn_s
    print(f"{nodes} simulated nodes of {threads} threads, {seconds} s, {known:,} thread-seconds")
    print(f"CPU time of the thread               {1000 * cpu_s / seconds:.1f} ms a second, {cpu_s / seconds:.1%}")
    print(f"with the waits for the disk          {1000 * wall_s / seconds:.1f} ms a second")
    print(f"longest {step} s of traces                {longest_s:.2f} s; with the full hour {at_the_hour_s:.2f} s")
    print(f"hand-over by the loop                {1e6 * handed_over_s(cluster, nodes) / nodes:.1f} µs a trace")
    print(f"closed, resumed                      {closed_s:.1f} s, {resumed_s:.1f} s")
    print(f"five minutes of all nodes read       {read_s:.2f} s ({len(read)} nodes)")
    print(f"bytes for a thread and second        {of_threads / known:.2f}, with labels and documents")
    print(f"… and of its share of the channels   {of_nodes / known:.2f} of nodes, {of_jobs / known:.2f} of jobs")
    print(f"memory of the process at most        {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


class _Nothing:
    lost, problem = 0, ""

    def add(self, trace: Trace) -> None:
        pass

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def handed_over_s(cluster: Cluster, nodes: int) -> float:
    """The loop's time for the traces of a second."""
    thread, traces = RecordingThread(_Nothing(), collected_s=3600.0), cluster.second(0)
    begun_s = time.thread_time()
    for _ in range(20):
        for trace in traces:
            thread.add(trace)
    took_s = (time.thread_time() - begun_s) / 20
    thread.close()
    return took_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--home", type=Path, help="record below this directory, to measure its disk")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.home) as home:
        measure(Path(home) / "recording", chosen.nodes, chosen.threads, 60 * chosen.minutes)


if __name__ == "__main__":
    main()
