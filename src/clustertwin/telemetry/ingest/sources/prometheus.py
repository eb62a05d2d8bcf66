"""Prometheus's HTTP API, or VictoriaMetrics through the same -> each node's counters, sample by sample.

An instant query of `metric[range]` gives the raw samples with their own times, where a range query would give
values repeated onto a grid. So the counters are those of the exporter, at the seconds of its scrapes. A long range
is asked for in pieces, one after the other, each far below the 11,000 points a series that the servers allow.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from clustertwin.core.errors import NoSamples, SettingsError, SourceError
from clustertwin.core.traces import JobSpan
from clustertwin.telemetry.ingest.counters import MODES, Counters, job_spans
from clustertwin.telemetry.ingest.dialects import DIALECTS, Dialect, jobs_of, thread_number
from clustertwin.telemetry.ingest.sources.http import Endpoint, Http

#: One question's range. At 1 Hz, 160 threads and 8 modes it is half a million samples, parsed in half a second.
PIECE_S = 400.0


@dataclass(frozen=True, slots=True)
class Series:
    """One series' raw samples, in time order."""

    labels: dict[str, str]
    times_s: NDArray[np.float64]
    values: NDArray[np.float64]


class Prometheus:
    """History. `dialect` is a name of `DIALECTS`, or empty for the first that has samples; `matchers` narrow the
    nodes in PromQL's words, e.g. `cluster="a",instance=~"n[0-9]+:.*"`."""

    def __init__(
        self, endpoint: Endpoint, *, dialect: str = "", matchers: str = "", node_channels: bool = False
    ) -> None:
        if dialect and dialect not in DIALECTS:
            raise SettingsError(f"no dialect {dialect!r}; there are {', '.join(DIALECTS)}")
        self.endpoint, self.matchers, self.node_channels = endpoint, matchers, node_channels
        self._dialects = [DIALECTS[dialect]] if dialect else list(DIALECTS.values())
        self._http = Http(endpoint)

    def counters(self, start_s: float, end_s: float) -> list[Counters]:
        """Each node's counters, by name; NoSamples where the server has none."""
        for dialect in self._dialects:
            by_instance = _group(self.raw(dialect.cpu, start_s, end_s))
            if by_instance:
                return self._nodes(dialect, by_instance, start_s, end_s)
        wanted = " or ".join(dialect.cpu for dialect in self._dialects)
        narrowed = f" with {self.matchers}" if self.matchers else ""
        raise NoSamples(f"{self.endpoint.url}: no {wanted}{narrowed} between {start_s:.0f} and {end_s:.0f}")

    def raw(self, metric: str, start_s: float, end_s: float, labels: tuple[tuple[str, str], ...] = ()) -> list[Series]:
        """The raw samples of every series of a metric from `start_s` to `end_s`."""
        matchers = ",".join([f'{name}="{value}"' for name, value in labels] + [self.matchers] * bool(self.matchers))
        found: dict[tuple[tuple[str, str], ...], list[tuple[Any, Any]]] = {}
        for begin_s, stop_s in _pieces(start_s, end_s):
            # Whether a range holds its left end differs between servers and versions: ask for more, cut here.
            query = f"{metric}{{{matchers}}}[{round((stop_s - begin_s) * 1000) + 1000}ms]"
            for one in self._matrix(query, stop_s):
                inside = (one.times_s >= begin_s) & (one.times_s < (np.inf if stop_s == end_s else stop_s))
                inside &= one.times_s <= end_s
                part = one.times_s[inside], one.values[inside]
                found.setdefault(tuple(sorted(one.labels.items())), []).append(part)
        return [
            Series(dict(key), np.concatenate([t for t, _ in parts]), np.concatenate([v for _, v in parts]))
            for key, parts in found.items()
            if any(len(t) for t, _ in parts)
        ]

    def _matrix(self, query: str, time_s: float) -> list[Series]:
        """What an instant query of a range gives."""
        params = {"query": query, "time": f"{time_s:.3f}", "timeout": f"{self.endpoint.deadline_s:g}s"}
        body = self._http.get("/api/v1/query", params)
        with _uncollected():
            return self._decode(query, body)

    def _decode(self, query: str, body: bytes) -> list[Series]:
        try:
            answer = orjson.loads(body)
            if answer["status"] != "success":
                raise SourceError(f"{self.endpoint.url}: {query}: {answer.get('error', 'no reason given')}")
            kind, rows = answer["data"]["resultType"], answer["data"]["result"]
            if kind != "matrix" or not isinstance(rows, list):
                raise SourceError(f"{self.endpoint.url}: {query}: a {kind}, not raw samples")
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            raise SourceError(f"{self.endpoint.url}: does not answer like Prometheus") from None
        return [self._series(row) for row in rows]

    def _series(self, row: Any) -> Series:
        """One row of an answer, after a look at whether it is a row at all."""
        try:
            times, values = zip(*row["values"], strict=True) if row["values"] else ((), ())
            series = Series(row["metric"], np.array(times, dtype=np.float64), np.array(values, dtype=np.float64))
            words = all(isinstance(word, str) for word in series.labels.values())
            if words and series.times_s.ndim == series.values.ndim == 1:
                return series
        except (KeyError, TypeError, ValueError, AttributeError):
            pass
        raise SourceError(f"{self.endpoint.url}: a series that is none: {str(row)[:120]}")

    def _nodes(
        self, dialect: Dialect, by_instance: dict[str, list[Series]], start_s: float, end_s: float
    ) -> list[Counters]:
        names = _names(list(by_instance), self.raw(dialect.info, start_s, end_s), dialect.info_label)
        times = {instance: _times(group) for instance, group in by_instance.items()}
        jobs = _group(self.raw(dialect.job_cpu, start_s, end_s)) if dialect.job_cpu else {}
        company: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
        if self.node_channels:
            company = self._company(dialect, times, start_s, end_s)
        nodes = []
        for instance, group in by_instance.items():
            cpus, modes, seconds = self._table(group, times[instance])
            memory, stalled = company.get(instance, (None, None))
            spans = self._spans(names[instance], times[instance], jobs.get(instance, []))
            nodes.append(Counters(names[instance], cpus, times[instance], seconds, modes, memory, stalled, spans))
        return sorted(nodes, key=lambda counters: counters.node)

    def _table(self, group: list[Series], times_s: NDArray[np.float64]) -> tuple[Any, Any, NDArray[np.float64]]:
        """One node's series -> cpus, modes and seconds (cpu, time, mode)."""
        placed = [(self._thread(series), series.labels.get("mode", ""), series) for series in group]
        cpus = tuple(sorted({cpu for cpu, _, _ in placed}))
        modes = tuple(mode for mode in MODES if any(own == mode for _, own, _ in placed))
        row, column = {cpu: i for i, cpu in enumerate(cpus)}, {mode: i for i, mode in enumerate(modes)}
        seconds = np.full((len(cpus), len(times_s), len(modes)), np.nan)
        for cpu, mode, series in placed:
            if mode in column:
                seconds[row[cpu], :, column[mode]] = _on(times_s, series)
        return cpus, modes, seconds

    def _thread(self, series: Series) -> int:
        try:
            return thread_number(series.labels)
        except ValueError as reason:
            raise SourceError(f"{self.endpoint.url}: {reason}") from None

    def _company(self, dialect: Dialect, times: dict[str, NDArray[np.float64]], start_s: float, end_s: float) -> Any:
        """Each node's memory_used_ratio and io_stalled_s, on its own times; NaN where not told."""
        total = _group(self.raw(dialect.memory_total, start_s, end_s))
        available = _group(self.raw(dialect.memory_available, start_s, end_s))
        stalled = _group(self.raw(dialect.io_stalled, start_s, end_s, dialect.io_stalled_labels))

        def on(groups: dict[str, list[Series]], instance: str) -> NDArray[np.float64]:
            own = groups.get(instance)
            return _on(times[instance], own[0]) if own else np.full(len(times[instance]), np.nan)

        with np.errstate(divide="ignore", invalid="ignore"):  # no total, no ratio: masked like any other NaN
            return {
                instance: (1 - on(available, instance) / on(total, instance), on(stalled, instance))
                for instance in times
            }

    def _spans(self, node: str, times_s: NDArray[np.float64], allocations: list[Series]) -> tuple[JobSpan, ...]:
        """Which job had which thread at which scrape -> spans."""
        at: dict[float, list[tuple[str, int]]] = {float(time_s): [] for time_s in times_s}
        for series in allocations:
            cpu = self._thread(series)
            for time_s, value in zip(series.times_s.tolist(), series.values.tolist(), strict=True):
                if value > 0 and time_s in at:
                    at[time_s].append((series.labels.get("jobid", ""), cpu))
        return job_spans(node, [(time_s, jobs_of(pairs)) for time_s, pairs in at.items()])


@contextmanager
def _uncollected() -> Iterator[None]:
    """No garbage collection: it would look through half a million new lists again and again, five times the work."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _pieces(start_s: float, end_s: float) -> Iterator[tuple[float, float]]:
    while start_s < end_s:
        stop_s = min(start_s + PIECE_S, end_s)
        yield start_s, stop_s
        start_s = stop_s


def _group(series: list[Series]) -> dict[str, list[Series]]:
    groups: dict[str, list[Series]] = {}
    for one in series:
        groups.setdefault(one.labels.get("instance", ""), []).append(one)
    return groups


def _times(group: list[Series]) -> NDArray[np.float64]:
    """All sample times of a node; its series share them, as one scrape gives them all."""
    first = group[0].times_s
    if all(np.array_equal(series.times_s, first) for series in group):
        return first
    return np.unique(np.concatenate([series.times_s for series in group]))


def _on(times_s: NDArray[np.float64], series: Series) -> NDArray[np.float64]:
    """A series on a node's times; NaN where it has no sample."""
    if np.array_equal(series.times_s, times_s):
        return series.values
    values = np.full(len(times_s), np.nan)
    at = np.searchsorted(times_s, series.times_s).clip(max=len(times_s) - 1)
    same = times_s[at] == series.times_s
    values[at[same]] = series.values[same]
    return values


def _names(instances: list[str], infos: list[Series], label: str) -> dict[str, str]:
    """Instance -> the name the node gives itself, else its host; two that would be one keep their full address."""
    told = {series.labels.get("instance", ""): series.labels.get(label, "") for series in infos}
    names = {instance: told.get(instance) or instance.rpartition(":")[0] or instance for instance in instances}
    taken = list(names.values())
    return {instance: name if taken.count(name) == 1 else instance for instance, name in names.items()}
