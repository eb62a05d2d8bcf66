"""The embedded recording beside its peers: a day of threads -> bytes a sample, writing, window reads, a day's windows.

    python benchmarks/recording.py                 a generated cluster: 5 nodes, 32 threads each, 24 hours
    python benchmarks/recording.py CAMPAIGN        the same size, tiled from the recordings below a directory

A sample is one channel of one thread in one second. Peers hold the same bytes (Parquet, npz), or the same
counters (Prometheus, backfilled with promtool, on fewer threads and two hours).
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from clustertwin.core.channels import CPU
from clustertwin.core.traces import Trace
from clustertwin.telemetry.recording import Recorder, Recording, find
from clustertwin.telemetry.recording.ticks import Ticks

START_S, HOUR_S = 1_700_000_000 // 3600 * 3600, 3600
#: Job type -> mean seconds in user, system, iowait, other, and their concentration (Dirichlet).
KINDS = {
    "np": ((0.985, 0.010, 0.000, 0.005), 2000),
    "good-io": ((0.62, 0.22, 0.03, 0.13), 60),
    "bad-io": ((0.03, 0.09, 0.84, 0.04), 80),
    "mpi": ((0.80, 0.12, 0.00, 0.08), 25),
    "idle": ((0.002, 0.003, 0.000, 0.995), 400),
}


def generated(threads: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """One hour, (thread, time, channel): every thread runs jobs of 5 to 20 minutes, ticks as a 100 Hz kernel counts."""
    hour = np.empty((threads, HOUR_S, 4))
    for thread in hour:
        at = 0
        while at < HOUR_S:
            length = int(rng.integers(300, 1200))
            mean, concentration = KINDS[str(rng.choice(list(KINDS)))]
            part = thread[at : at + length]
            part[:] = rng.dirichlet(np.array(mean) * concentration + 1e-3, size=len(part))
            at += length
    # Rounding the running sums gives whole ticks; a second is 99 to 101 of them long, as scrapes are.
    ticks_a_second = 100 + rng.choice([-1, 0, 1], p=[0.05, 0.9, 0.05], size=(threads, HOUR_S, 1))
    ticks = np.diff(np.rint(np.cumsum(hour, axis=1).cumsum(axis=2) * ticks_a_second), axis=2, prepend=0)
    ticks = np.maximum(np.diff(ticks, axis=1, prepend=0), 0)
    return (ticks / np.maximum(ticks.sum(axis=2, keepdims=True), 1)).astype(np.float32)


def tiled(campaign: Path, threads: int, hours: int) -> Iterator[NDArray[np.float32]]:
    """Hour after hour, (thread, time, channel): recorded threads, repeated, each from its own offset on.

    Every second is drawn from the 15 s around it, so that no stretch is an exact copy of another: the compression
    ratio comes from the jobs, not from the tiling.
    """
    traces = [Recording.open(path).trace(node) for path in find(campaign) for node in Recording.open(path).nodes]
    rows = [row[known] for trace in traces for row, known in zip(trace.values, trace.valid, strict=True) if known.any()]
    rng = np.random.default_rng(0)
    offsets = rng.integers(0, 2**31, size=threads)
    for hour in range(hours):
        seconds = np.arange(HOUR_S) + hour * HOUR_S + rng.integers(-15, 16, size=(threads, HOUR_S))
        yield np.stack(
            [rows[i % len(rows)][(seconds[i] + offsets[i]) % len(rows[i % len(rows)])] for i in range(threads)]
        )


def best(action: Callable[[], object], times: int) -> float:
    """Seconds of the fastest of several runs: the machine's noise only ever adds."""
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def size_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


class Ours:
    """The embedded recording."""

    name = "clustertwin"

    def __init__(self, root: Path, nodes: int, threads: int) -> None:
        self.directory = root / "ours"
        self.nodes = {f"node{n}": tuple(range(threads)) for n in range(nodes)}

    def write(self, hours: list[NDArray[np.float32]]) -> None:
        with Recorder.create(self.directory, self.nodes) as recorder:
            for h, hour in enumerate(hours):
                for n, (node, cpus) in enumerate(self.nodes.items()):
                    values = hour[n * len(cpus) : (n + 1) * len(cpus)]
                    valid = np.ones(values.shape[:2], np.bool_)
                    recorder.append(Trace(node, cpus, START_S + h * HOUR_S, CPU, values, valid))

    def open(self) -> None:
        self.recording = Recording.open(self.directory)

    def window(self, node: int, cpu: int, at_s: int) -> NDArray[np.float32]:
        return self.recording.window(f"node{node}", cpu, START_S + at_s)[0]

    def day(self) -> NDArray[np.float32]:
        return Recording.open(self.directory).windows().values


class Files(ABC):
    """The common part of Parquet and npz: a file for each node and hour, with the same bytes."""

    name = ""

    def __init__(self, root: Path, nodes: int, threads: int) -> None:
        self.directory = root / self.name
        self.nodes, self.threads, self.ticks = nodes, threads, Ticks.of(CPU)

    def write(self, hours: list[NDArray[np.float32]]) -> None:
        self.directory.mkdir()
        self.hours = len(hours)
        for h, hour in enumerate(hours):
            for n in range(self.nodes):
                values = hour[n * self.threads : (n + 1) * self.threads]
                ticks = np.empty((self.threads, 3, HOUR_S), np.uint8)
                self.ticks.quantise(values, np.ones(values.shape[:2], np.bool_), ticks)
                self.save(self.path(n, h), ticks)

    def path(self, node: int, hour: int) -> Path:
        return self.directory / f"{node}-{hour}.{self.name}"

    def open(self) -> None:
        """Called before the first window is read; only formats that keep files open need it."""
        return

    def window(self, node: int, cpu: int, at_s: int) -> NDArray[np.float32]:
        hour, at = divmod(at_s, HOUR_S)
        return self.ratios(self.load_thread(self.path(node, hour), cpu)[None, :, at : at + 100])[0]

    def day(self) -> NDArray[np.float32]:
        values = np.empty((self.nodes, self.threads, self.hours * HOUR_S, 4), np.float32)
        for n in range(self.nodes):
            for h in range(self.hours):
                values[n, :, h * HOUR_S : (h + 1) * HOUR_S] = self.ratios(self.load(self.path(n, h)))
        return values.reshape(-1, 100, 4)

    def ratios(self, ticks: NDArray[np.uint8]) -> NDArray[np.float32]:
        shape = ticks.shape[0], ticks.shape[2]
        values, valid = np.empty((*shape, 4), np.float32), np.empty(shape, np.bool_)
        self.ticks.dequantise(ticks, values, valid)
        return values

    @abstractmethod
    def save(self, path: Path, ticks: NDArray[np.uint8]) -> None: ...

    @abstractmethod
    def load(self, path: Path) -> NDArray[np.uint8]: ...

    def load_thread(self, path: Path, cpu: int) -> NDArray[np.uint8]:
        return self.load(path)[cpu]


class Parquet(Files):
    """A row group per thread, zstd; the files stay open for window reads."""

    name = "parquet"

    def save(self, path: Path, ticks: NDArray[np.uint8]) -> None:
        flat = ticks.transpose(1, 0, 2).reshape(3, -1)
        table = pa.table({name: pa.array(row) for name, row in zip(("system", "iowait", "other"), flat, strict=True)})
        pq.write_table(table, path, compression="zstd", row_group_size=HOUR_S)

    def load(self, path: Path) -> NDArray[np.uint8]:
        table = pq.read_table(path, use_threads=False)
        return np.stack([column.to_numpy().reshape(self.threads, HOUR_S) for column in table.columns], axis=1)

    def open(self) -> None:
        self.files: dict[Path, pq.ParquetFile] = {}

    def load_thread(self, path: Path, cpu: int) -> NDArray[np.uint8]:
        if path not in self.files:
            self.files[path] = pq.ParquetFile(path)
        columns = self.files[path].read_row_group(cpu, use_threads=False).columns
        return np.stack([column.to_numpy() for column in columns])


class Npz(Files):
    """numpy's own compressed archive."""

    name = "npz"

    def save(self, path: Path, ticks: NDArray[np.uint8]) -> None:
        np.savez_compressed(path, ticks=ticks)

    def load(self, path: Path) -> NDArray[np.uint8]:
        with np.load(path) as archive:
            ticks: NDArray[np.uint8] = archive["ticks"]
        return ticks


def prometheus_bytes_per_sample(hours: list[NDArray[np.float32]], root: Path, threads: int = 16) -> float | None:
    """The blocks of Prometheus with the same seconds as counters; None if promtool is not installed."""
    if shutil.which("promtool") is None:
        return None
    seconds = np.concatenate([hour[:threads] for hour in hours[:2]], axis=1)
    counters = np.cumsum(np.rint(seconds * 100), axis=1) / 100
    text = root / "openmetrics.txt"
    with text.open("w") as file:
        file.write("# TYPE twin_cpu_seconds counter\n")
        for cpu, thread in enumerate(counters):
            for channel, name in enumerate(CPU.names):
                labels = f'{{cpu="{cpu}",mode="{name}",instance="node0"}}'
                column = thread[:, channel].tolist()
                file.writelines(f"twin_cpu_seconds_total{labels} {v:.2f} {START_S + t}\n" for t, v in enumerate(column))
        file.write("# EOF\n")
    out = root / "tsdb"
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return size_bytes(out) / counters.size


def measure(store: Ours | Files, hours: list[NDArray[np.float32]], threads: int, nodes: int) -> list[str]:
    samples = sum(hour.size for hour in hours)
    write_s = best(lambda: (shutil.rmtree(store.directory, ignore_errors=True), store.write(hours)), 2)
    store.open()
    rng = np.random.default_rng(1)
    reads = []
    for _ in range(2000 if isinstance(store, Ours) else 200):
        node, cpu = int(rng.integers(nodes)), int(rng.integers(threads))
        at_s = int(rng.integers(len(hours))) * HOUR_S + int(rng.integers(36)) * 100
        begin = time.perf_counter()
        store.window(node, cpu, at_s)
        reads.append(time.perf_counter() - begin)
    day_s = best(store.day, 3)
    return [
        store.name,
        f"{size_bytes(store.directory) / samples:.3f}",
        f"{samples / write_s / 1e6:.0f}",
        f"{statistics.median(reads) * 1e6:.0f}",
        f"{day_s:.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaign", nargs="?", type=Path, help="recordings to tile the day from")
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--hours", type=int, default=24)
    options = parser.parse_args()
    total = options.nodes * options.threads
    if options.campaign:
        hours = list(tiled(options.campaign, total, options.hours))
    else:
        rng = np.random.default_rng(0)
        distinct = [generated(total, rng) for _ in range(min(4, options.hours))]
        hours = [np.roll(distinct[h % len(distinct)], h, axis=0) for h in range(options.hours)]
    source = f"tiled from {options.campaign}" if options.campaign else "generated"
    title = f"{total} threads × 4 channels × {options.hours} h, {source}"
    table = Table("store", "byte/sample", "M samples/s written", "µs a window", "s a day's windows", title=title)
    with tempfile.TemporaryDirectory() as root:
        for store in (Ours, Parquet, Npz):
            table.add_row(
                *measure(store(Path(root), options.nodes, options.threads), hours, options.threads, options.nodes)
            )
        if (peer := prometheus_bytes_per_sample(hours, Path(root))) is not None:
            table.add_row("Prometheus TSDB", f"{peer:.3f}", "", "", "")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
