"""Ranges read from a real Prometheus, one after the other -> what a read costs the server and the reader.

A query by remote read has this form (protobuf, in a snappy block):

    ReadRequest    queries = 1, accepted_response_types = 2
    Query          start_timestamp_ms = 1, end_timestamp_ms = 2, matchers = 3
    LabelMatcher   type = 1 (0: equal), name = 2, value = 3
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import cramjam
import httpx
import numpy as np

from clustertwin.telemetry.ingest.sources import traces
from clustertwin.telemetry.ingest.sources.http import Endpoint, HttpClient
from clustertwin.telemetry.ingest.sources.prometheus import Prometheus

METRIC = "twin_cpu_seconds_total"
SAMPLES, STREAMED_CHUNKS = 0, 1  # types of an answer to a remote read
SETTLE_S = 0.2  # the server frees memory after its answer
T = TypeVar("T")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cost:
    """One read."""

    wall_s: float
    own_s: float  # CPU time of this process
    server_s: float  # CPU time of the server, without its scrapes


@dataclass(frozen=True, slots=True)
class Meter:
    server: int  # its process
    scrape_load: float  # CPU time per second of the server without a reader

    def cost(self, read: Callable[[], T]) -> tuple[Cost, T]:
        begun_s, own_s, server_s = time.monotonic(), time.process_time(), cpu_s(self.server)
        answer = read()
        own_s, wall_s = time.process_time() - own_s, time.monotonic() - begun_s
        time.sleep(SETTLE_S)
        used_s = cpu_s(self.server) - server_s
        return Cost(wall_s, own_s, used_s - self.scrape_load * (time.monotonic() - begun_s)), answer


class Reads:
    """Reads of `stride` samples of each series, which was scraped every `interval_s`."""

    def __init__(self, url: str, meter: Meter, stride: int, interval_s: int) -> None:
        self.end = Endpoint(url, deadline_s=120.0, compressed=False)
        self.meter, self.stride, self.interval_s = meter, stride, interval_s

    def range_s(self) -> tuple[int, int]:
        end_s = int(time.time()) - 1 - self.interval_s
        return end_s - self.stride * self.interval_s, end_s

    def measure(self, names: list[str], parts: int, match: str, seconds: float) -> dict[str, Any]:
        """Read all parts of the nodes in turn, and turn them into traces."""
        sources = [
            Prometheus(self.end, node_channels=True, matchers=instances(names[k::parts] if parts > 1 else [], match))
            for k in range(parts)
        ]
        for source in sources:
            self._whole(source)  # the first read compiles, and parses the labels
        rounds, threads, begun_s = [], 0, time.time()
        while time.time() - begun_s < seconds or not rounds:
            results = [self.meter.cost(lambda source=source: self._whole(source)) for source in sources]
            rounds.append([cost for cost, _ in results])
            threads = sum(whole for _, whole in results)
        each = [cost for costs in rounds for cost in costs]
        return {
            "reads": len(each),
            "read_s": _spread([cost.wall_s for cost in each]),
            "read_p99_s": float(np.quantile([cost.wall_s for cost in each], 0.99)),
            "read_cpu_s": _spread([sum(cost.own_s for cost in costs) for costs in rounds]),  # of all parts
            "server_cpu_s": _spread([sum(cost.server_s for cost in costs) for costs in rounds]),
            "whole": threads,
        }

    def measure_ways(self, seconds: float) -> dict[str, Any]:
        """The CPU seconds of all nodes by each way to ask for them, without decoding the answers."""
        client = HttpClient(self.end)
        ways = {
            "json": lambda start_s, end_s: client.get(
                "/api/v1/query", {"query": f"{METRIC}[{end_s - start_s}s]", "time": f"{end_s}"}
            ),
            "chunks": lambda start_s, end_s: remote_read(self.end.url, METRIC, start_s, end_s, STREAMED_CHUNKS),
            "samples": lambda start_s, end_s: remote_read(self.end.url, METRIC, start_s, end_s, SAMPLES),
        }
        costs: dict[str, list[Cost]] = {name: [] for name in ways}
        begun_s = time.time()
        while time.time() - begun_s < seconds:
            for name, ask in ways.items():
                costs[name].append(self.meter.cost(lambda ask=ask: ask(*self.range_s()))[0])
        return {
            f"{name}_{whose}": _spread([getattr(cost, key) for cost in costs[name]])
            for name in ways
            for whose, key in (("server_cpu_s", "server_s"), ("received_cpu_s", "own_s"))
        }

    def _whole(self, source: Prometheus) -> int:
        """Read a range; the threads that have every sample of it."""
        found, _ = traces(source, *self.range_s(), interval_s=self.interval_s)
        return sum(int(trace.valid.all(axis=1).sum()) for trace in found)


def instances(names: list[str], match: str = "") -> str:
    """Matchers of these nodes."""
    wanted = "|".join(f"{name}:9752" for name in names)
    return ",".join([f'instance=~"{wanted}"'] * bool(names) + [match] * bool(match))


def _spread(numbers: list[float]) -> str:
    """The median, with the quartiles."""
    low, middle, high = np.quantile(numbers, [0.25, 0.5, 0.75])
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def remote_read(url: str, metric: str, start_s: int, end_s: int, kind: int) -> bytes:
    """The answer to a query by remote read, as it was received."""
    matcher = _bytes_field(2, b"__name__") + _bytes_field(3, metric.encode())
    query = _number_field(1, start_s * 1000) + _number_field(2, end_s * 1000) + _bytes_field(3, matcher)
    request = bytes(cramjam.snappy.compress_raw(_bytes_field(1, query) + _number_field(2, kind)))
    head = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
    return httpx.post(f"{url}/api/v1/read", content=request, headers=head, timeout=120).raise_for_status().content


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _number_field(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _bytes_field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content
