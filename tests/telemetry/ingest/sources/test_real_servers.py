"""Half a minute of real servers: the samples that Prometheus and VictoriaMetrics stored equal a direct reading.

Our exporter reads this host, and its ring is the direct reading: a scrape and the ring hold the same sample.
node_exporter keeps no samples, so it reads a small /proc of the test, which changes once a second at a time when no
server scrapes. Reading that /proc directly, at the phase of a server's scrapes, must give the server's counters.
"""

from __future__ import annotations

import math
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from tests.servers import exporter, node_exporter, prometheus, victoria_metrics

from clustertwin.core.channels import NODE, SPREAD
from clustertwin.core.errors import SourceError
from clustertwin.core.traces import Trace
from clustertwin.telemetry.ingest.counters import Counters, NodeReading, stack
from clustertwin.telemetry.ingest.rates import Faults, to_trace
from clustertwin.telemetry.ingest.sources import traces
from clustertwin.telemetry.ingest.sources.crowded_instances import CrowdedInstances
from clustertwin.telemetry.ingest.sources.http import Endpoint, HttpClient
from clustertwin.telemetry.ingest.sources.local_host import Host
from clustertwin.telemetry.ingest.sources.prometheus import Prometheus
from clustertwin.telemetry.ingest.sources.single_exporter import Exporter

pytestmark = [pytest.mark.real, pytest.mark.slow]

SECONDS = 32
SERVERS = ("prometheus", "victoria_metrics")


@dataclass
class Proc:
    """A /proc with four threads, memory and pressure; `move` advances it by a second of random work."""

    root: Path
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def __post_init__(self) -> None:
        (self.root / "proc/pressure").mkdir(parents=True)
        (self.root / "sys/fs/cgroup/system.slice/slurmstepd.scope").mkdir(parents=True)
        (self.root / "sys/fs/cgroup/cgroup.controllers").write_text("cpuset cpu memory\n")
        self.ticks = self.rng.integers(1_000, 1_000_000, size=(4, 8))
        self.waited_us = dict.fromkeys(("cpu", "memory", "io"), 1_000_000)
        self.move()

    def start_job(self) -> None:
        job = self.root / "sys/fs/cgroup/system.slice/slurmstepd.scope/job_17"
        job.mkdir()
        for name in ("cpuset.cpus", "cpuset.cpus.effective"):
            (job / name).write_text("1-2\n")

    def end_job(self) -> None:
        shutil.rmtree(self.root / "sys/fs/cgroup/system.slice/slurmstepd.scope/job_17")

    def move(self, ticks: int = 100) -> None:
        self.ticks += self.rng.multinomial(ticks, np.full(8, 1 / 8), size=4)
        rows = [("cpu ", self.ticks.sum(axis=0)), *((f"cpu{i}", row) for i, row in enumerate(self.ticks))]
        text = "".join(f"{name} {' '.join(map(str, row))} 0 0\n" for name, row in rows)
        text += "intr 0\nctxt 0\nbtime 1700000000\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n"
        self.write("stat", text)
        self.write("meminfo", f"MemTotal: 1000000 kB\nMemFree: 1 kB\nMemAvailable: {self.rng.integers(1, 10**6)} kB\n")
        for resource in self.waited_us:
            self.waited_us[resource] += int(self.rng.integers(0, 10**6))
            rest = f"avg10=0.00 avg60=0.00 avg300=0.00 total={self.waited_us[resource]}\n"
            self.write(f"pressure/{resource}", f"some {rest}full {rest}")

    def write(self, name: str, text: str) -> None:
        draft = self.root / "draft"
        draft.write_text(text)
        draft.replace(self.root / "proc" / name)


@dataclass
class Minute:
    """What the time left behind."""

    urls: dict[str, str]
    exporters: dict[str, str]  # the one each server scraped, and the one that was asked live
    start_s: int
    end_s: int
    direct: dict[str, list[NodeReading]]  # the /proc of our own, read at each server's phase
    lagging: list[NodeReading]  # of an exporter of its own, asked live but not for fifteen seconds in the middle
    slurm: str  # the exporter of a node with one Slurm job, for the third fifteen seconds


def scrape_phase(source: Prometheus) -> float:
    """When in the second a server scrapes what this source reads; waits for its third sample."""
    for _ in range(200):
        now_s = time.time()
        try:
            found = source.counters(now_s - 20, now_s)
            if len(found[0].times_s) >= 3:
                return float(found[0].times_s[-1] % 1)
        except SourceError:
            pass
        time.sleep(0.1)
    pytest.fail(f"{source} does not scrape")


def each_second(phase: float, work: object, stop: threading.Event) -> threading.Thread:
    """Do `work` at this phase of every second until told to stop."""

    def run() -> None:
        while not stop.wait((phase - time.time()) % 1 or 1.0):
            work()  # type: ignore[operator]

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


@pytest.fixture(scope="module")
def minute(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minute]:
    tmp = tmp_path_factory.mktemp("minute")
    proc, host = Proc(tmp / "root"), Host(tmp / "root", "n1", jobs=False)
    with ExitStack() as open_servers:
        enter = open_servers.enter_context
        node = enter(
            node_exporter(
                tmp / "node",
                "--collector.disable-defaults",
                "--collector.cpu",
                "--collector.uname",
                "--collector.meminfo",
                "--collector.pressure",
                f"--path.procfs={proc.root}/proc",
            )
        )
        # No server scrapes the exporter that is read live: two samples in one second would be ambiguous.
        ours = {name: enter(exporter(tmp / f"exporter-{name}", f"--node={name}")) for name in (*SERVERS, "asked")}
        slurm = enter(exporter(tmp / "slurm", "--node=slurm", f"--path.rootfs={proc.root}"))
        start = {"prometheus": prometheus, "victoria_metrics": victoria_metrics}
        targets = {"node": [node.address], "slurm": [slurm.address]}
        urls = {name: enter(start[name](tmp / name, {"twin": [ours[name].address], **targets})).url for name in SERVERS}
        phases = {name: scrape_phase(Prometheus(Endpoint(url), dialect="node")) for name, url in urls.items()}
        direct: dict[str, list[NodeReading]] = {name: [] for name in SERVERS}
        stop = threading.Event()
        # Halfway between the scrapes of the two servers, on the longer side, nothing reads.
        first, second = sorted(phases.values())
        away = (first + second) / 2 + (0.5 if second - first < 0.5 else 0.0)
        threads = [each_second(away % 1, proc.move, stop)]
        for name, phase in phases.items():
            threads.append(each_second(phase, lambda name=name: direct[name].extend(host.readings()), stop))
        source, lagging = Exporter(Endpoint(ours["asked"].url)), []
        pause = [math.inf, math.inf]  # from, to

        def ask_live() -> None:
            if not pause[0] < time.time() < pause[1]:
                lagging.extend(source.readings())

        threads.append(each_second(0.0, ask_live, stop))
        # The first reading imports and compiles, which can take seconds. Until it is asked every second, an exporter
        # samples at a phase of its own, and two readings may label its seconds differently. So begin when all keep up.
        while min(map(len, (lagging, *direct.values()))) < 5:
            time.sleep(0.1)
        start_s = int(time.time()) + 2
        pause[:] = start_s + SECONDS / 3, start_s + SECONDS / 3 + 15
        time.sleep(SECONDS / 2)
        proc.start_job()
        time.sleep(SECONDS / 4)
        proc.end_job()
        time.sleep(SECONDS / 4 + 4)
        stop.set()
        for thread in threads:
            thread.join()
        time.sleep(2)  # VictoriaMetrics shows what is a second old
        exporters = {name: server.url for name, server in ours.items()}
        yield Minute(urls, exporters, start_s, start_s + SECONDS, direct, lagging, slurm.url)


def twin(minute: Minute, server: str) -> Prometheus:
    """The exporter on this host, as a server stored it."""
    return Prometheus(Endpoint(minute.urls[server]), matchers='job="twin"')


def only(history: object, minute: Minute) -> Counters:
    (counters,) = history.counters(minute.start_s - 1.5, minute.end_s + 1.5)  # type: ignore[attr-defined]
    return counters


def assert_same_trace(a: Trace, b: Trace, phase: float) -> None:
    """Every second is there, valid and equal to the last bit."""
    assert a.values.shape[1] == SECONDS
    assert a.valid.all()
    assert b.valid.all()
    # A sampler at the half second is a hair from either label: there the two readings may disagree by one.
    shifts = (0,) if abs(phase - 0.5) > 0.05 else (0, 1, -1)
    assert any(np.array_equal(a.values[:, 1:-1], b.values[:, 1 + s : SECONDS - 1 + s]) for s in shifts)


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_gives_our_exporters_counters_as_its_ring_does(minute: Minute, server: str) -> None:
    stored = only(twin(minute, server), minute)
    ring = only(Exporter(Endpoint(minute.exporters[server])), minute)
    assert stored.node == server
    assert (stored.cpus, stored.modes) == (ring.cpus, ring.modes)
    nearest = np.abs(ring.times_s[:, None] - stored.times_s).argmin(axis=0)
    assert len(stored.times_s) >= SECONDS
    np.testing.assert_allclose(ring.times_s[nearest], stored.times_s, atol=0.4)
    np.testing.assert_array_equal(stored.seconds, ring.seconds[:, nearest])


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_gives_our_exporters_trace_as_its_ring_does(minute: Minute, server: str) -> None:
    (stored,), _ = traces(twin(minute, server), minute.start_s, minute.end_s)
    ring = Exporter(Endpoint(minute.exporters[server]))
    (read,), _ = traces(ring, minute.start_s, minute.end_s)
    assert_same_trace(stored, read, only(ring, minute).times_s[0] % 1)


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_gives_node_exporters_trace_as_read_directly(minute: Minute, server: str) -> None:
    (stored,), faults = traces(Prometheus(Endpoint(minute.urls[server]), dialect="node"), minute.start_s, minute.end_s)
    read, _ = to_trace(stack(minute.direct[server]), start_s=minute.start_s, end_s=minute.end_s)
    assert_same_trace(stored, read, minute.direct[server][0].time_s % 1)
    assert len(np.unique(stored.values[0], axis=0)) > SECONDS / 2  # it did move
    assert faults == Faults()


def test_a_late_request_to_an_exporter_gives_all_missed_seconds(minute: Minute) -> None:
    lagging, faults = to_trace(stack(minute.lagging), start_s=minute.start_s, end_s=minute.end_s - 2)
    ring = Exporter(Endpoint(minute.exporters["asked"]))
    (whole,), _ = traces(ring, minute.start_s, minute.end_s - 2)
    assert replace(faults, doubled=0) == Faults()  # our own first look at the page is one more sample
    np.testing.assert_array_equal(lagging.values[:, 1:], whole.values[:, 1:])  # and falls into the first second


@pytest.mark.parametrize("server", [*SERVERS, "ring"])
def test_a_slurm_job_is_a_span_in_every_source(minute: Minute, server: str) -> None:
    ring = Exporter(Endpoint(minute.slurm))
    source = ring if server == "ring" else Prometheus(Endpoint(minute.urls[server]), matchers='job="slurm"')
    (span,) = only(source, minute).spans
    assert (span.job, span.node, span.cpus) == ("17", "slurm", (1, 2))
    assert span.start_s == pytest.approx(minute.start_s - 2 + SECONDS / 2, abs=2.5)
    assert span.end_s - span.start_s == pytest.approx(SECONDS / 4, abs=2.5)


@pytest.mark.parametrize("server", SERVERS)
def test_node_channels_come_with_the_counters(minute: Minute, server: str) -> None:
    source = Prometheus(Endpoint(minute.urls[server]), matchers='job="twin"', node_channels=True)
    stored, ring = only(source, minute), only(Exporter(Endpoint(minute.exporters[server])), minute)
    nearest = np.abs(ring.times_s[:, None] - stored.times_s).argmin(axis=0)
    assert stored.operands is not None
    assert ring.operands is not None
    np.testing.assert_array_equal(stored.operands, ring.operands[nearest])
    memory = to_trace(stored)[0].node_channels.values[:, NODE.index("memory_used")]
    assert ((memory > 0) & (memory < 1)).all()


@pytest.mark.parametrize("server", SERVERS)
def test_node_exporter_gives_the_node_channels_that_a_direct_reading_gives(minute: Minute, server: str) -> None:
    """Pressure depends on the time between two samples, which differs a little: so the counters are compared."""
    stored = only(Prometheus(Endpoint(minute.urls[server]), dialect="node", node_channels=True), minute)
    direct = stack(minute.direct[server])
    inside = (stored.times_s > direct.times_s[0]) & (stored.times_s < direct.times_s[-1])
    nearest = np.abs(direct.times_s[:, None] - stored.times_s[inside]).argmin(axis=0)
    assert inside.sum() >= SECONDS - 2
    collected = [NODE.index(name) for name in SPREAD.names]  # by the collectors that this node_exporter runs
    np.testing.assert_allclose(
        stored.operands[inside][:, collected], direct.operands[nearest][:, collected], rtol=1e-12
    )
    assert not np.isnan(stored.operands[:, collected, 0]).any()


def test_a_range_in_many_pieces_is_the_same_range(minute: Minute, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = only(twin(minute, "prometheus"), minute)
    monkeypatch.setattr("clustertwin.telemetry.ingest.sources.prometheus.PIECE_S", 7.0)
    for server in SERVERS:
        pieces = only(twin(minute, server), minute)
        assert len(np.unique(pieces.times_s)) == len(pieces.times_s) >= SECONDS
        if server == "prometheus":
            np.testing.assert_array_equal(pieces.times_s, whole.times_s)
            np.testing.assert_array_equal(pieces.seconds, whole.seconds)


def test_a_refused_query_has_the_servers_reason(minute: Minute) -> None:
    with pytest.raises(SourceError, match=r"/api/v1/query: HTTP 4\d\d: .*parse error"):
        Prometheus(Endpoint(minute.urls["prometheus"]), matchers="what=").counters(0, 1)


def test_an_empty_range_is_an_error(minute: Minute) -> None:
    with pytest.raises(SourceError, match="no twin_cpu_seconds_total or node_cpu_seconds_total between 10 and 20"):
        Prometheus(Endpoint(minute.urls["prometheus"])).counters(10, 20)


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_counts_series_and_leaves_instances_out(minute: Minute, server: str) -> None:
    endpoint = Endpoint(minute.urls[server])
    crowded, client = CrowdedInstances(endpoint.url, 0), HttpClient(endpoint)
    query = {"query": crowded.query("twin_cpu_seconds_total{}"), "time": str(minute.end_s)}
    assert crowded.note(client.get("/api/v1/query", query), minute.end_s)
    client.close()
    matchers = crowded.matchers(minute.end_s)
    assert len(matchers) == 2
    for left, kept in ((matchers[:1], 1), (matchers, 0)):
        source = Prometheus(endpoint, matchers=",".join(left))
        series = source.raw("twin_cpu_seconds_total", minute.end_s - 5, minute.end_s)
        assert len({one.labels["instance"] for one in series}) == kept


def test_another_kind_of_server_is_reported(minute: Minute) -> None:
    exporter_url = minute.exporters["prometheus"]
    assert httpx.get(exporter_url).status_code == 200
    with pytest.raises(SourceError, match="HTTP 404"):
        Prometheus(Endpoint(exporter_url)).counters(10, 20)
