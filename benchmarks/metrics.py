"""One scrape of /metrics for a simulated cluster of 100,000 threads on 3,125 nodes, compared with prometheus_client.

python benchmarks/metrics.py
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from prometheus_client import Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.table import Table

from clustertwin.core.channels import CPU
from clustertwin.service.live.snapshot import JobState, NodeState, ServiceState, nothing_yet
from clustertwin.service.outgoing.service_metrics import render
from clustertwin.service.store.event_store import Store
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.moments.moment import assemble

NODES, CPUS, JOBS = 3_125, 32, 2_000


def state(home: Path) -> ServiceState:
    """A cluster in which every value is known."""
    names = [f"n{i:05}" for i in range(NODES)]
    values, valid = np.zeros((CPUS, 1, len(CPU)), np.float32), np.ones((CPUS, 1), np.bool_)
    moment = assemble(0, CPU, [(name, tuple(range(CPUS)), values, valid) for name in names], [])
    score = np.random.default_rng(0).random(NODES * CPUS).astype(np.float32)
    scores = Scores(score, score[:, None], ("reconstruction",), score, score[:, None])
    published = ServiceState(home, Store(home / "state.sqlite"))
    snapshot = replace(
        nothing_yet("benchmark"),
        scored=moment,
        scores=scores,
        nodes=tuple(NodeState(name, "watching", CPUS, 1, 1.25, 0.01, 0, 0, ()) for name in names),
        jobs=tuple(JobState(str(i), "", "", (names[i],), CPUS, 0, 1.25, 0.01, 0) for i in range(JOBS)),
    )
    published.publish(snapshot, None)
    return published


def seconds(work: Callable[[], object], rounds: int = 5) -> float:
    """CPU seconds of the fastest round."""
    best = float("inf")
    for _ in range(rounds):
        begun = time.process_time()
        work()
        best = min(best, time.process_time() - begun)
    return best


class CollectedFamilies:
    """A collector for prometheus_client that returns existing families."""

    def __init__(self, families: list[Metric]) -> None:
        self.families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self.families)


def main() -> None:
    table = Table(title="one scrape, CPU seconds", title_justify="left")
    for column in ("page", "series", "MB", "ours", "prometheus_client", "ratio"):
        table.add_column(column, justify="left" if column == "page" else "right")
    with tempfile.TemporaryDirectory() as directory:
        published = state(Path(directory))
        for page, threads in (("nodes and jobs", False), ("and threads", True)):
            text = render(published, threads=threads)
            theirs = CollectedFamilies(list(text_string_to_metric_families(text)))
            series = sum(not line.startswith("#") for line in text.splitlines())
            ours_s = seconds(lambda threads=threads: render(published, threads=threads))  # type: ignore[misc]
            theirs_s = seconds(lambda theirs=theirs: generate_latest(theirs))  # type: ignore[misc]
            table.add_row(
                page,
                f"{series:,}",
                f"{len(text) / 1e6:.1f}",
                f"{ours_s:.3f}",
                f"{theirs_s:.3f}",
                f"{theirs_s / ours_s:.1f}",
            )
        published.store.close()
    Console().print(table)


if __name__ == "__main__":
    main()
