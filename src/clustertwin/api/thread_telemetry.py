"""Telemetry in Python: simulate a cluster, record this host, open a recording, find events, score every thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.cluster_traces import ClusterTraces
from clustertwin.core.errors import NoSamples, SettingsError
from clustertwin.core.tables import ColumnTable
from clustertwin.core.traces import Trace, check_trace
from clustertwin.telemetry.recording import Recording

if TYPE_CHECKING:
    from clustertwin.api.cluster_events import ClusterEvents
    from clustertwin.telemetry.detection.detector import Detector
    from clustertwin.telemetry.moments.moment import Moment

DRAWS = 20  # of a cluster in which some job can have a fault

ROUNDING = 1e-3  # that a ratio may be beyond 0 and 1

Telemetry = ClusterTraces | Recording | Trace


def simulate_cluster(
    nodes: int = 3,
    threads: int = 8,
    minutes: float = 30.0,
    fault: str = "",
    seed: int = 0,
    job_types: tuple[str, ...] = ("np", "good-io", "mpi-8"),
) -> ClusterTraces:
    """Every thread of a simulated cluster at 1 Hz, with its jobs. A `fault` strikes one job at half time.

    Faults are `hung-rank`, `hung-job`, `straggler-x2`, `misbound`, `throttled`, `memory-leak` and others.

    >>> import clustertwin as ct
    >>> cluster = ct.simulate_cluster(nodes=2, threads=8, minutes=10, fault="hung-rank")
    >>> len(cluster), {span.anomaly for span in cluster.jobs} >= {"hung-rank"}
    (2, True)
    >>> cluster.to_xarray().ratio.shape
    (16, 600, 4)
    """
    from clustertwin.telemetry.simulation.anomalies import ANOMALIES, family
    from clustertwin.telemetry.simulation.demand import ClusterSettings
    from clustertwin.telemetry.simulation.faulty_job import JobFault, with_fault
    from clustertwin.telemetry.simulation.harm_channels import with_harm_channels
    from clustertwin.telemetry.simulation.signature import read_signatures
    from clustertwin.telemetry.simulation.simulated_cluster import simulate

    if fault and fault not in ANOMALIES:
        raise SettingsError(f"unknown fault {fault!r}; use one of {', '.join(ANOMALIES)}")
    signatures, long_s = read_signatures(None), minutes * 60
    settings = ClusterSettings(nodes, threads, minutes / 60, job_types, job_s=(long_s, long_s), gap_s=5.0)
    if not fault:
        return ClusterTraces.of(with_harm_channels(simulate(settings, signatures, seed), seed))
    onset_s = settings.start_s + int(long_s / 2)
    for attempt in range(DRAWS):
        # The first draw is that of the seed. If none of its jobs can have the fault, another one is drawn.
        traces = simulate(settings, signatures, seed + attempt * 1_000_003)
        spans = [span for trace in traces for span in trace.spans if span.start_s < onset_s < span.end_s]
        able = [span for span in spans if family(span.job_type) in ANOMALIES[fault].job_types]
        if able:
            faulty = with_fault(traces, JobFault(able[0].job, fault, onset_s), signatures, seed)
            return ClusterTraces.of(with_harm_channels(faulty, seed))
    kinds = ", ".join(ANOMALIES[fault].job_types)
    raise SettingsError(f"no job can have the fault {fault}: it strikes {kinds}; set job_types, or more threads")


def record_host(seconds: float = 60.0) -> ClusterTraces:
    """Every thread of this machine at 1 Hz, from now on, with the jobs that its cgroups name. It waits that long."""
    from clustertwin.telemetry.ingest.sources import watch
    from clustertwin.telemetry.ingest.sources.local_host import Host

    seconds_seen = list(watch(Host(), seconds))
    if not seconds_seen:
        raise NoSamples(f"no second of this host is complete after {seconds:g} s; record at least two")
    return ClusterTraces.of([_joined(seconds_seen)])


def open_recording(directory: Path | str) -> Recording:
    """A recording of `twin record`, `twin up` or a campaign. Its `traces()` are the nodes' traces."""
    return Recording.open(Path(directory))


def load_detector(directory: Path | str | None = None) -> TraceDetector:
    """The detector that ships with clustertwin, or the one in a directory.

    >>> import clustertwin as ct
    >>> cluster = ct.simulate_cluster(minutes=20, fault="hung-job")
    >>> events = ct.load_detector().events(cluster, every_s=30)
    >>> {event.job for event in events.events} == {span.job for span in cluster.jobs if span.anomaly}
    True
    >>> any("looks hung" in title for title in events.titles)
    True
    """
    from clustertwin.telemetry.detection.bundled import bundled
    from clustertwin.telemetry.detection.detector_store import read

    return TraceDetector(bundled() if directory is None else read(Path(directory)))


@dataclass(frozen=True, slots=True, repr=False)
class ThreadScores(ColumnTable):
    """A score for each thread at each scored second. Higher is stranger; NaN is unknown."""

    time_s: NDArray[np.int64]
    node: NDArray[np.str_]
    cpu: NDArray[np.int32]
    job: NDArray[np.str_]  # empty: no job
    score: NDArray[np.float32]
    view: NDArray[np.str_]  # the view with the highest surprise
    threshold: float
    start_s: int  # the first second of the telemetry

    def __len__(self) -> int:
        return len(self.score)

    def table(self) -> Mapping[str, Any]:
        return {name: getattr(self, name) for name in ("time_s", "node", "cpu", "job", "score", "view")}

    def caption(self) -> str:
        above = int((self.score > self.threshold).sum())
        return f"{len(self):,} scores, {above:,} above the threshold {self.threshold:g}"

    def unusual(self) -> Any:
        """The rows above the threshold, the highest score first, as a pandas DataFrame.

        Unusual work may be new and healthy, so a score opens no event: `TraceDetector.events` asks for harm and change.
        """
        frame = self.to_pandas()
        return frame[frame.score > self.threshold].sort_values(["score", "time_s"], ascending=[False, True])


@dataclass(frozen=True, slots=True, repr=False)
class TraceDetector:
    """A detector for traces and recordings."""

    detector: Detector

    def __repr__(self) -> str:
        return f"<TraceDetector: {self.version}, threshold {self.threshold:g}>"

    @property
    def threshold(self) -> float:
        """Normal threads exceed it at the stated false-alarm rate."""
        return self.detector.threshold

    @property
    def version(self) -> str:
        return self.detector.version

    def events(self, telemetry: Telemetry | Iterable[Trace], every_s: int = 10) -> ClusterEvents:
        """The events that the service would open: jobs that are harmed, or unlike themselves, for a while.

        It looks every `every_s` seconds, at most 30. The first look needs 100 s of data.
        """
        from clustertwin.api.cluster_events import find_events

        return find_events(self.detector, traces_of(telemetry), every_s)

    def score(self, telemetry: Telemetry | Iterable[Trace], every_s: int = 10) -> ThreadScores:
        """The score of every thread, every `every_s` seconds. The first needs five minutes of data."""
        from clustertwin.telemetry.detection.batch_scoring import score_batches
        from clustertwin.telemetry.moments.moment import moments

        if every_s < 1:
            raise SettingsError(f"every_s is at least 1 s, not {every_s}")
        traces = traces_of(telemetry)
        parts = [moment for moment, _ in moments(traces, every_s)]
        if not parts:
            raise NoSamples("a score needs five minutes of every node; this telemetry is shorter")
        rows = [_rows(moment, scores) for moment, scores in
                zip(parts, score_batches(self.detector, parts), strict=True)]  # fmt: skip
        columns = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
        return ThreadScores(**columns, threshold=self.threshold, start_s=min(trace.start_s for trace in traces))


def traces_of(telemetry: Telemetry | Iterable[Trace]) -> list[Trace]:
    """The traces of a cluster, a recording, a node, or a sequence of nodes."""
    if isinstance(telemetry, Trace):
        telemetry = [telemetry]
    if isinstance(telemetry, Recording):
        return [telemetry.trace(node) for node in telemetry.nodes]
    traces = list(telemetry) if isinstance(telemetry, Iterable) else [telemetry]
    for trace in traces:
        if not isinstance(trace, Trace):
            kind = type(telemetry).__name__
            raise SettingsError(f"telemetry is a recording or traces, not {kind}; ct.open_recording opens a directory")
        _check(trace)
    return traces


def _check(trace: Trace) -> None:
    """Refuse a trace of the reader's own whose arrays do not fit or hold no ratios."""
    try:
        check_trace(trace)
    except ValueError as error:
        raise SettingsError(f"{trace.node}: {error}") from error
    known = trace.values[trace.valid]
    ratios = (known > -ROUNDING) & (known < 1 + ROUNDING)  # false for NaN too
    if not ratios.all():
        wrong = known[~ratios][0]
        raise SettingsError(f"{trace.node}: {wrong:g} is no ratio between 0 and 1; mask unknown seconds in `valid`")


def _rows(moment: Moment, scores: Any) -> dict[str, NDArray[Any]]:
    names = np.array([*moment.jobs, ""])
    return {
        "time_s": np.full(len(moment), moment.end_s, np.int64),
        "node": np.array(moment.nodes)[moment.node],
        "cpu": moment.cpu,
        "job": names[moment.job],
        "score": scores.score,
        "view": np.array([scores.deciding_view(thread) for thread in range(len(moment))]),
    }


def _joined(seconds: list[Trace]) -> Trace:
    """One trace of a node from traces of single seconds; seconds that are missing are invalid."""
    from clustertwin.core.traces import Trace as Joined

    first, last = seconds[0], seconds[-1]
    spans: dict[tuple[str, float], Any] = {}
    values = np.zeros((len(first.cpus), last.end_s - first.start_s, len(first.schema)), np.float32)
    valid = np.zeros(values.shape[:2], np.bool_)
    for trace in _same_threads(seconds):
        here = slice(trace.start_s - first.start_s, trace.end_s - first.start_s)
        values[:, here], valid[:, here] = trace.values, trace.valid
        spans |= {(span.job, span.start_s): span for span in trace.spans}
    return Joined(first.node, first.cpus, first.start_s, first.schema, values, valid, tuple(spans.values()))


def _same_threads(seconds: list[Trace]) -> Iterator[Trace]:
    """The seconds that have the threads of the first second. Others are left out: a thread was switched on or off."""
    return (trace for trace in seconds if trace.cpus == seconds[0].cpus)
