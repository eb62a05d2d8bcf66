"""The hand-over to a new champion while a cluster is scored each second: what is lost, what twice, how long it takes.

    python benchmarks/handover.py [--threads 20000] [--seconds 20]

A clock makes a numbered batch of every thread's window each second. One thread scores them while another process
promotes champions in turn. Afterwards every number must have been scored once, and every score of a batch must be the
one that a single model gives.
"""

from __future__ import annotations

import argparse
import multiprocessing
import queue
import tempfile
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from clustertwin.telemetry.campaign.simulation.cluster import simulate
from clustertwin.telemetry.campaign.simulation.demand import ClusterSettings
from clustertwin.telemetry.campaign.simulation.signature import read_signatures
from clustertwin.telemetry.continual import champions
from clustertwin.telemetry.continual.handover import Handover
from clustertwin.telemetry.continual.lock import next_fence
from clustertwin.telemetry.detection.detector import Settings, calibrate
from clustertwin.telemetry.detection.moment import Moment, moments
from clustertwin.telemetry.models import find
from clustertwin.telemetry.models.store import read, save


def promote_in_turn(home: str, versions: list[str], every_s: float, count: int) -> None:
    for i in range(count):
        time.sleep(every_s)
        champions.promote(Path(home), versions[i % len(versions)], next_fence(Path(home)), "benchmark", time.time())


def tick(batches: queue.Queue[int], seconds: int) -> None:
    for number in range(seconds):
        batches.put(number)
        time.sleep(1)
    batches.put(-1)


def widened(moment: Moment, threads: int) -> Moment:
    """The same threads over and over, each copy with jobs of its own."""
    copies = -(-threads // len(moment))
    rows = np.tile(np.arange(len(moment)), copies)[:threads]
    copy = (np.arange(threads) // len(moment)).astype(np.int32)
    job = np.where(moment.job[rows] < 0, -1, moment.job[rows] + copy * len(moment.jobs)).astype(np.int32)
    jobs = tuple(f"{name}.{i}" for i in range(copies) for name in moment.jobs)
    columns = {name: getattr(moment, name)[rows] for name in ("values", "valid", "node", "cpu", "age_s")}
    return replace(moment, job=job, jobs=jobs, **columns)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--threads", type=int, default=20_000)
    options.add_argument("--seconds", type=float, default=20.0)
    asked = options.parse_args()
    torch.set_num_threads(1)
    normal = [m for m, _ in moments(simulate(ClusterSettings(nodes=2, threads=32), read_signatures(), 0), every_s=200)]
    with tempfile.TemporaryDirectory() as scratch:
        home, versions = Path(scratch), []
        for seed in range(2):
            torch.manual_seed(seed)
            config, network = find("linear")
            save(home / f"m{seed}", "linear", network(config()))
            detector = calibrate(read(home / f"m{seed}"), normal, Settings(components=4))
            versions.append(champions.enter(home, detector, {}))
        handover = Handover(home, champions.read_version(home, versions[0]))
        moment = widened(normal[-1], asked.threads)
        handover.detector.score(moment)  # what is compiled once is compiled now
        expected = {v: champions.read_version(home, v).score(moment).score for v in versions}
        seconds, batches = int(asked.seconds), queue.Queue[int]()
        other = multiprocessing.get_context("spawn").Process(
            target=promote_in_turn, args=(scratch, versions[::-1], 1.0, seconds)
        )
        other.start()
        threading.Thread(target=tick, args=(batches, seconds), daemon=True).start()
        numbers, mixed, polls, used = [], 0, [], set()
        began_s = time.perf_counter()
        while (number := batches.get()) >= 0:
            asked_s = time.perf_counter()
            detector = handover.poll()
            polls.append(time.perf_counter() - asked_s)
            score = detector.score(moment).score
            numbers.append(number)
            used.add(detector.version)
            mixed += not np.array_equal(score, expected[detector.version], equal_nan=True)
        took_s = time.perf_counter() - began_s
        other.join()
    times = Counter(numbers)
    lost, twice = seconds - len(times), sum(n > 1 for n in times.values())
    print(f"{len(numbers)} batches of {asked.threads:,} windows in {took_s:.1f} s")
    print(f"{lost} lost, {twice} scored twice, {mixed} not scored wholly by one model")
    print(f"{handover.taken} champions taken over, {len(used)} models used, {handover.refused} refused")
    print(f"a poll: median {1e6 * np.median(polls):.0f} µs; with a take-over at most {1e3 * max(polls):.0f} ms")


if __name__ == "__main__":
    main()
