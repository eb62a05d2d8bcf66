"""The HTTP API of Prometheus or VictoriaMetrics -> each node's counters, sample by sample.

An instant query of `metric[range]` returns the raw samples with their own times; a range query would return values
repeated onto a grid. So these are the counters of the exporter at the times of its scrapes. A long range is queried in
pieces, one after the other, each far below the limit of 11,000 points for a series.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from clustertwin.core.channels import JOB
from clustertwin.core.errors import NoSamples, SettingsError, SourceError
from clustertwin.core.formatting import visible
from clustertwin.telemetry.ingest.counters import (
    MOST_JOB_SAMPLES,
    Counters,
    JobCounters,
    short_name,
)
from clustertwin.telemetry.ingest.dialects import DIALECTS, Dialect
from clustertwin.telemetry.ingest.node_channels import selectors
from clustertwin.telemetry.ingest.sources.channel_series import (
    ChannelAnswer,
    ChannelPlan,
    PlacedSeries,
    job_operands,
    node_operands,
    place_series,
    plan_channels,
    spans_of,
)
from clustertwin.telemetry.ingest.sources.crowded_instances import CrowdedInstances
from clustertwin.telemetry.ingest.sources.http import AnswerTooLong, Endpoint, HttpClient
from clustertwin.telemetry.ingest.sources.instance_names import InstanceNames
from clustertwin.telemetry.ingest.sources.query_answer import (
    AnswerLimits,
    LabelReader,
    Labels,
    MatrixAnswer,
    Series,
    T,
    TooManySeries,
    read_answer,
    series_of,
)
from clustertwin.telemetry.ingest.sources.series_table import (
    NodePlan,
    SecondsTable,
    join_tables,
    node_table,
    plan_nodes,
)

#: The range of one query. At 1 Hz, 160 threads and 8 modes it has half a million samples, parsed in half a second.
PIECE_S = 400.0
#: If an answer is too long, the range is halved, down to this.
SHORTEST_PIECE_S = 4.0


class Prometheus:
    """A history source. `dialect` is a key of `DIALECTS`; if it is empty, the first with samples is used. `matchers`
    restrict the nodes in PromQL, e.g. `cluster="a",instance=~"n[0-9]+:.*"`. `node_channels` also reads the channels of
    nodes and of jobs, with one more query."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        dialect: str = "",
        matchers: str = "",
        node_channels: bool = False,
        limits: AnswerLimits = AnswerLimits(),
    ) -> None:
        if dialect and dialect not in DIALECTS:
            raise SettingsError(f"no dialect {dialect!r}; the dialects are {', '.join(DIALECTS)}")
        self.endpoint, self.matchers, self.node_channels = endpoint, matchers, node_channels
        self._dialects = [DIALECTS[dialect]] if dialect else list(DIALECTS.values())
        self._http = HttpClient(endpoint)
        self._plans: dict[str, LabelReader[dict[str, NodePlan]]] = {}  # by dialect
        self._labels: dict[str, LabelReader[list[Labels | None]]] = {}  # by metric
        self._channels: dict[str, LabelReader[dict[str, ChannelPlan]]] = {}  # by metric or matcher
        self._piece_s = PIECE_S
        self._limits = limits
        self._names = InstanceNames()
        self._crowded = CrowdedInstances(endpoint.url, limits.instance_series)
        #: The instances that the last answer could not be used for, and why. The others are not affected.
        self.refused: dict[str, str] = {}

    def counters(self, start_s: float, end_s: float) -> list[Counters]:
        """The counters of each node, ordered by name; NoSamples if the server has none.

        A node whose series cannot be used is left out and named in `refused`. SourceError if no node is left.
        """
        self.refused = {}
        for dialect in self._dialects:
            labels = self._plans.setdefault(dialect.name, LabelReader(plan_nodes))
            answers = list(self._answers(dialect.cpu, [], start_s, end_s, labels))
            instances = {instance: None for answer in answers if len(answer.times_s) for instance in answer.labels}
            if instances:
                return self._nodes(dialect, list(instances), answers, start_s, end_s)
        wanted = " or ".join(dialect.cpu for dialect in self._dialects)
        restricted = f" with {self.matchers}" if self.matchers else ""
        raise NoSamples(f"{self.endpoint.url}: no {wanted}{restricted} between {start_s:.0f} and {end_s:.0f}")

    def raw(self, metric: str, start_s: float, end_s: float, labels: Sequence[tuple[str, str]] = ()) -> list[Series]:
        """The raw samples of every series of a metric from `start_s` to `end_s`."""
        matchers = [f'{name}="{value}"' for name, value in labels]
        # Questions about single jobs or nodes are not repeated, so their labels are not kept.
        reader = LabelReader(list) if matchers else self._labels.setdefault(metric, LabelReader(list))
        answers = list(self._answers(metric, matchers, start_s, end_s, reader))
        if len(answers) == 1:
            return [series for series in series_of(answers[0]) if len(series.times_s)]
        pieces: dict[tuple[tuple[str, str], ...], list[Series]] = {}
        for answer in answers:
            for series in series_of(answer):
                pieces.setdefault(tuple(sorted(series.labels.items())), []).append(series)
        joined = [
            Series(dict(key), np.concatenate([s.times_s for s in parts]), np.concatenate([s.values for s in parts]))
            for key, parts in pieces.items()
        ]
        return [series for series in joined if len(series.times_s)]

    def _answers(
        self, metric: str, matchers: list[str], start_s: float, end_s: float, labels: LabelReader[T]
    ) -> Iterator[MatrixAnswer[T]]:
        """The answers to one query for each piece of the range. If an answer is too long, pieces become shorter."""
        begin_s = start_s
        while begin_s < end_s:
            stop_s = min(begin_s + self._piece_s, end_s)
            joined = ",".join(filter(None, [*matchers, *self._crowded.matchers(stop_s), self.matchers]))
            self.refused |= self._crowded.reasons
            # Servers differ in whether a range includes its left end: query more, and cut here.
            query = f"{metric}{{{joined}}}[{round((stop_s - begin_s) * 1000) + 1000}ms]"
            params = {"query": query, "time": f"{stop_s:.3f}", "timeout": f"{self.endpoint.deadline_s:g}s"}
            try:
                body = self._http.get("/api/v1/query", params)
                with _without_garbage_collection():
                    answer = read_answer(body, self.endpoint.url, query, labels, self._limits, self.refused)
            except AnswerTooLong:
                if stop_s - begin_s > SHORTEST_PIECE_S:
                    self._piece_s = max((stop_s - begin_s) / 2, SHORTEST_PIECE_S)
                elif not self._leave_out_crowded(f"{metric}{{{joined}}}", stop_s):
                    raise
                continue
            except TooManySeries:
                if not self._leave_out_crowded(f"{metric}{{{joined}}}", stop_s):
                    raise
                continue
            del body  # it can have hundreds of megabytes
            is_last = stop_s == end_s
            yield answer.between(begin_s, np.nextafter(end_s, np.inf) if is_last else stop_s)
            begin_s = stop_s

    def _leave_out_crowded(self, selector: str, at_s: float) -> bool:
        """Leave out the instances with too many series for a while; whether there are any."""
        params = {"query": self._crowded.query(selector), "time": f"{at_s:.3f}"}
        is_crowded = self._crowded.note(self._http.get("/api/v1/query", params), at_s)
        if is_crowded:
            self._piece_s = PIECE_S  # the pieces became shorter because of them
        return is_crowded

    def _nodes(
        self,
        dialect: Dialect,
        instances: list[str],
        answers: list[MatrixAnswer[dict[str, NodePlan]]],
        start_s: float,
        end_s: float,
    ) -> list[Counters]:
        infos = self.raw(dialect.info, start_s, end_s)
        said = {series.labels.get("instance", ""): series.labels.get(dialect.info_label, "") for series in infos}
        names, claims = self._names.of(instances, said, end_s)
        self.refused |= {i: f"{self.endpoint.url}: {visible(i[:60])}: {why}" for i, why in claims.items()}
        jobs = self._channel_answers(dialect, dialect.job_cpu, [], start_s, end_s) if dialect.job_cpu else []
        channels: list[ChannelAnswer] = []
        if self.node_channels:
            chosen = selectors(dialect.name) + selectors(dialect.name, JOB)
            metrics = {selector.metric for operand in chosen for selector in operand} - {dialect.job_cpu}
            matcher = f'__name__=~"{"|".join(sorted(metrics))}"'
            channels = self._channel_answers(dialect, "", [matcher], start_s, end_s)
        nodes = []
        for instance in names:
            try:
                name = short_name(names[instance], "node")
                table = self._table(instance, answers)
                if table is None:
                    continue
                allocations = place_series(instance, table.times_s, jobs)
                spans = spans_of(name, table.times_s, allocations)
                counters = Counters(name, table.cpus, table.times_s, table.seconds, table.modes, spans=spans)
                if self.node_channels:
                    placed = allocations + place_series(instance, table.times_s, channels)
                    counters = _with_channels(counters, placed)
            except (SourceError, ValueError) as reason:  # of this node alone
                where = "" if isinstance(reason, SourceError) else f"{self.endpoint.url}: {visible(instance[:60])}: "
                self.refused[instance] = f"{where}{reason}"
                continue
            nodes.append(counters)
        if not nodes:
            if self.refused:
                raise SourceError(next(iter(self.refused.values())))
            raise NoSamples(f"{self.endpoint.url}: no samples between {start_s:.0f} and {end_s:.0f}")
        return sorted(nodes, key=lambda counters: counters.node)

    def _channel_answers(
        self, dialect: Dialect, metric: str, matchers: list[str], start_s: float, end_s: float
    ) -> list[ChannelAnswer]:
        """The series behind the channels of nodes and jobs, or the threads of jobs."""
        labels = self._channels.setdefault(
            metric or matchers[0], LabelReader(lambda found: plan_channels(found, dialect.name))
        )
        return list(self._answers(metric, matchers, start_s, end_s, labels))

    def _table(self, instance: str, answers: list[MatrixAnswer[dict[str, NodePlan]]]) -> SecondsTable | None:
        """The CPU seconds of one node; None if it has no samples in this range."""
        try:
            tables = [node_table(answer.labels[instance], answer) for answer in answers if instance in answer.labels]
        except SourceError as reason:
            raise SourceError(f"{self.endpoint.url}: {instance}: {reason}") from None
        found = [table for table in tables if table is not None]
        return join_tables(found) if found else None


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


def _with_channels(counters: Counters, placed: list[PlacedSeries]) -> Counters:
    """The counters with the operands of their channels, at their own times; NaN where a series has no sample."""
    times, jobs = len(counters.times_s), tuple(dict.fromkeys(span.job for span in counters.spans))
    job_counters = None
    if jobs and len(jobs) * times <= MOST_JOB_SAMPLES:
        job_counters = JobCounters(jobs, job_operands(jobs, placed, times))
    return replace(counters, operands=node_operands(placed, times), job_counters=job_counters)
