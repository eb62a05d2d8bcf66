"""The HTTP API of Prometheus or VictoriaMetrics -> each node's counters, sample by sample.

An instant query of `metric[range]` returns the raw samples with their own times; a range query would return values
repeated onto a grid. So these are the counters of the exporter at the times of its scrapes. A long range is queried in
pieces, one after the other, each far below the limit of 11,000 points for a series.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import JOB, NODE, Selector
from clustertwin.core.errors import NoSamples, SettingsError, SourceError
from clustertwin.core.traces import JobSpan
from clustertwin.telemetry.ingest.counters import (
    MODES,
    MOST_JOB_SAMPLES,
    NODE_THREADS,
    Counters,
    JobCounters,
    job_spans,
    short_name,
    visible,
)
from clustertwin.telemetry.ingest.dialects import DIALECTS, Dialect, jobs_of, thread_number
from clustertwin.telemetry.ingest.node_channels import is_selected, selectors
from clustertwin.telemetry.ingest.sources.http import Endpoint, HttpClient
from clustertwin.telemetry.ingest.sources.query_answer import Series, parse_answer

#: The range of one query. At 1 Hz, 160 threads and 8 modes it has half a million samples, parsed in half a second.
PIECE_S = 400.0


#: Cells of a node's table for each of its samples. A scrape has one time for all series, so the true number is one.
_CELLS_PER_SAMPLE = 8


class Prometheus:
    """A history source. `dialect` is a key of `DIALECTS`; if it is empty, the first with samples is used. `matchers`
    restrict the nodes in PromQL, e.g. `cluster="a",instance=~"n[0-9]+:.*"`. `node_channels` also reads the channels of
    nodes and of jobs, with one more query."""

    def __init__(
        self, endpoint: Endpoint, *, dialect: str = "", matchers: str = "", node_channels: bool = False
    ) -> None:
        if dialect and dialect not in DIALECTS:
            raise SettingsError(f"no dialect {dialect!r}; the dialects are {', '.join(DIALECTS)}")
        self.endpoint, self.matchers, self.node_channels = endpoint, matchers, node_channels
        self._dialects = [DIALECTS[dialect]] if dialect else list(DIALECTS.values())
        self._http = HttpClient(endpoint)
        #: The instances that the last answer could not be used for, and why. The others are not affected.
        self.refused: dict[str, str] = {}

    def counters(self, start_s: float, end_s: float) -> list[Counters]:
        """The counters of each node, ordered by name; NoSamples if the server has none.

        A node whose series cannot be used is left out and named in `refused`. SourceError if no node is left.
        """
        self.refused = {}
        for dialect in self._dialects:
            by_instance = _group(self.raw(dialect.cpu, start_s, end_s))
            if by_instance:
                return self._nodes(dialect, by_instance, start_s, end_s)
        wanted = " or ".join(dialect.cpu for dialect in self._dialects)
        restricted = f" with {self.matchers}" if self.matchers else ""
        raise NoSamples(f"{self.endpoint.url}: no {wanted}{restricted} between {start_s:.0f} and {end_s:.0f}")

    def raw(self, metric: str, start_s: float, end_s: float, labels: Sequence[tuple[str, str]] = ()) -> list[Series]:
        """The raw samples of every series of a metric from `start_s` to `end_s`."""
        return self._raw(metric, [f'{name}="{value}"' for name, value in labels], start_s, end_s)

    def _raw(self, metric: str, matchers: list[str], start_s: float, end_s: float) -> list[Series]:
        joined = ",".join(matchers + [self.matchers] * bool(self.matchers))
        pieces: dict[tuple[tuple[str, str], ...], list[tuple[Any, Any]]] = {}
        for begin_s, stop_s in _pieces(start_s, end_s):
            # Servers differ in whether a range includes its left end: query more, and cut here.
            query = f"{metric}{{{joined}}}[{round((stop_s - begin_s) * 1000) + 1000}ms]"
            for series in self._matrix(query, stop_s):
                inside = (series.times_s >= begin_s) & (series.times_s < (np.inf if stop_s == end_s else stop_s))
                inside &= series.times_s <= end_s
                piece = series.times_s[inside], series.values[inside]
                pieces.setdefault(tuple(sorted(series.labels.items())), []).append(piece)
        return [
            Series(dict(key), np.concatenate([t for t, _ in parts]), np.concatenate([v for _, v in parts]))
            for key, parts in pieces.items()
            if any(len(t) for t, _ in parts)
        ]

    def _matrix(self, query: str, time_s: float) -> list[Series]:
        """The result of an instant query of a range."""
        params = {"query": query, "time": f"{time_s:.3f}", "timeout": f"{self.endpoint.deadline_s:g}s"}
        body = self._http.get("/api/v1/query", params)
        with _without_garbage_collection():
            return parse_answer(body, self.endpoint.url, query, refused=self.refused)

    def _nodes(
        self, dialect: Dialect, by_instance: dict[str, list[Series]], start_s: float, end_s: float
    ) -> list[Counters]:
        names = _names(list(by_instance), self.raw(dialect.info, start_s, end_s), dialect.info_label)
        jobs = _group(self.raw(dialect.job_cpu, start_s, end_s)) if dialect.job_cpu else {}
        channels = self._channel_series(dialect, start_s, end_s) if self.node_channels else None
        nodes = []
        for instance, group in by_instance.items():
            try:
                name = short_name(names[instance], "node")
                counters = self._counters(name, group, jobs.get(instance, []))
            except (SourceError, ValueError) as reason:  # of this node alone
                where = "" if isinstance(reason, SourceError) else f"{self.endpoint.url}: {visible(instance[:60])}: "
                self.refused[instance] = f"{where}{reason}"
                continue
            if channels is not None:
                allocations = jobs.get(instance, [])
                counters = _with_channels(counters, channels.get(instance, []) + allocations, dialect.name)
            nodes.append(counters)
        if not nodes:
            raise SourceError(next(iter(self.refused.values())))
        return sorted(nodes, key=lambda counters: counters.node)

    def _counters(self, name: str, group: list[Series], allocations: list[Series]) -> Counters:
        """One node, without its channels."""
        times_s = _times(group)
        cpus, modes, seconds = self._table(group, times_s)
        return Counters(name, cpus, times_s, seconds, modes, spans=self._spans(name, times_s, allocations))

    def _table(self, group: list[Series], times_s: NDArray[np.float64]) -> tuple[Any, Any, NDArray[np.float64]]:
        """The series of one node -> cpus, modes and seconds (cpu, time, mode)."""
        placed = [(self._thread(series), series.labels.get("mode", ""), series) for series in group]
        cpus = tuple(sorted({cpu for cpu, _, _ in placed}))
        present = {mode for _, mode, _ in placed}
        modes = tuple(mode for mode in MODES if mode in present)
        where = f"{self.endpoint.url}: {group[0].labels.get('instance', '')}"
        if len(cpus) > NODE_THREADS:
            raise SourceError(f"{where}: {len(cpus)} hardware threads; the limit is {NODE_THREADS}")
        cells, samples = len(cpus) * len(times_s) * len(modes), sum(len(series.times_s) for series in group)
        if cells > _CELLS_PER_SAMPLE * samples + 1_000_000:
            raise SourceError(f"{where}: its {len(group)} series have {len(times_s)} different times")
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

    def _channel_series(self, dialect: Dialect, start_s: float, end_s: float) -> dict[str, list[Series]]:
        """The series behind the channels of nodes and jobs, by instance."""
        chosen = selectors(dialect.name) + selectors(dialect.name, JOB)
        metrics = {selector.metric for operand in chosen for selector in operand} - {dialect.job_cpu}
        return _group(self._raw("", [f'__name__=~"{"|".join(sorted(metrics))}"'], start_s, end_s))

    def _spans(self, node: str, times_s: NDArray[np.float64], allocations: list[Series]) -> tuple[JobSpan, ...]:
        """The job of each thread at each scrape -> spans."""
        at: dict[float, list[tuple[str, int]]] = {float(time_s): [] for time_s in times_s}
        for series in allocations:
            cpu, job = self._thread(series), short_name(series.labels.get("jobid", ""), "job")
            for time_s, value in zip(series.times_s.tolist(), series.values.tolist(), strict=True):
                if value > 0 and time_s in at:
                    at[time_s].append((job, cpu))
        return job_spans(node, [(time_s, jobs_of(pairs)) for time_s, pairs in at.items()])


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Garbage collection would traverse half a million new lists again and again, for five times the work."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _pieces(start_s: float, end_s: float) -> Iterator[tuple[float, float]]:
    while start_s < end_s:
        stop_s = min(start_s + PIECE_S, end_s)
        yield start_s, stop_s
        start_s = stop_s


def _group(all_series: list[Series]) -> dict[str, list[Series]]:
    groups: dict[str, list[Series]] = {}
    for series in all_series:
        groups.setdefault(series.labels.get("instance", ""), []).append(series)
    return groups


def _times(group: list[Series]) -> NDArray[np.float64]:
    """All sample times of a node. Usually its series share them, because they come from the same scrapes."""
    first = group[0].times_s
    if all(np.array_equal(series.times_s, first) for series in group):
        return first
    return np.unique(np.concatenate([series.times_s for series in group]))


def _on(times_s: NDArray[np.float64], series: Series) -> NDArray[np.float64]:
    """A series at a node's times; NaN where it has no sample."""
    if np.array_equal(series.times_s, times_s):
        return series.values
    values = np.full(len(times_s), np.nan)
    at = np.searchsorted(times_s, series.times_s).clip(max=len(times_s) - 1)
    same = times_s[at] == series.times_s
    values[at[same]] = series.values[same]
    return values


def _with_channels(counters: Counters, series: list[Series], dialect: str) -> Counters:
    """The counters with the operands of their channels, at their own times; NaN where a series has no sample."""
    times_s = counters.times_s
    by_job: dict[str, list[Series]] = {span.job: [] for span in counters.spans}
    for one in series:
        if one.labels.get("jobid", "") in by_job:
            by_job[one.labels["jobid"]].append(one)
    job_counters = None
    if by_job and len(by_job) * len(times_s) <= MOST_JOB_SAMPLES:
        operands = np.array([_operands(times_s, found, selectors(dialect, JOB)) for found in by_job.values()])
        job_counters = JobCounters(tuple(by_job), operands)
    return replace(counters, operands=_operands(times_s, series, selectors(dialect, NODE)), job_counters=job_counters)


def _operands(
    times_s: NDArray[np.float64], series: list[Series], chosen: list[tuple[Selector, ...]]
) -> NDArray[np.float64]:
    """The operands (time, channel, 2): sums of the series that are selected; NaN where there are none."""
    operands = np.full((len(times_s), len(chosen)), np.nan)
    for column, operand in enumerate(chosen):
        parts = [
            _on(times_s, one) for one in series if is_selected(one.labels.get("__name__", ""), one.labels, operand)
        ]
        if parts:
            operands[:, column] = np.sum(parts, axis=0)
    return operands.reshape(len(times_s), -1, 2)


def _names(instances: list[str], infos: list[Series], label: str) -> dict[str, str]:
    """Instance -> the name in the node's info metric, or else its host. Nodes with equal names keep their addresses."""
    info = {series.labels.get("instance", ""): series.labels.get(label, "") for series in infos}
    names = {instance: info.get(instance) or instance.rpartition(":")[0] or instance for instance in instances}
    taken = Counter(names.values())
    return {instance: name if taken[name] == 1 else instance for instance, name in names.items()}
