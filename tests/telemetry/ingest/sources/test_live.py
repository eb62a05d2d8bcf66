"""Live sources: this host, the ring and the page of an exporter, and `watch`."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustertwin.core.channels import JOB, NODE
from clustertwin.core.errors import SourceError
from clustertwin.core.traces import Trace
from clustertwin.telemetry.exporter.agent import Agent, AgentSettings
from clustertwin.telemetry.exporter.collectors.cpu import parse_cpu_lines
from clustertwin.telemetry.exporter.http.routes import Routes
from clustertwin.telemetry.exporter.http.server import Server
from clustertwin.telemetry.exporter.http.webconfig import WebConfig
from clustertwin.telemetry.ingest.counters import JobCpus, NodeReading
from clustertwin.telemetry.ingest.metrics_page import PageReader
from clustertwin.telemetry.ingest.rates import Faults, RateStream
from clustertwin.telemetry.ingest.sources import watch
from clustertwin.telemetry.ingest.sources.http import Endpoint
from clustertwin.telemetry.ingest.sources.local_host import Host
from clustertwin.telemetry.ingest.sources.ring_blocks import RingReader
from clustertwin.telemetry.ingest.sources.single_exporter import Exporter

RING = b"""t 10.250
cpu0 100 0 50 850 0 0 0 0 0 0
cpu1 200 0 50 750 0 0 0 0 0 0
job slurm a%20b 0-1
t 11.250
cpu0 150 0 50 900 0 0 0 0 0 0
cpu1 200 0 50 850 0 0 0 0 0 0
"""
PAGE = b'twin_cpu_seconds_total{cpu="0",mode="user"} 1\ntwin_node_info{node="n1"} 1\n'
HAS_RING = b"twin_exporter_ring_begin_timestamp_seconds 10.25\n"


class Clock:
    """A clock that moves only when slept."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Scripted:
    """A live source that takes 10 ms to answer, and fails at the seconds it is told to."""

    def __init__(self, clock: Clock, fails: range = range(0), stalls: dict[int, float] | None = None) -> None:
        self.clock, self.fails, self.stalls = clock, fails, stalls or {}

    def readings(self) -> list[NodeReading]:
        now_s = self.clock.now_s
        self.clock.sleep(self.stalls.get(int(now_s), 0.01))
        if int(now_s) in self.fails:
            raise SourceError("gone")
        return [NodeReading("n1", now_s, (0,), np.full((1, 8), now_s / 8))]


def test_watch_gives_each_second_once() -> None:
    clock = Clock(99.5)
    found = list(watch(Scripted(clock), 5, clock=clock, sleep=clock.sleep))
    assert [trace.start_s for trace in found] == [100, 101, 102, 103, 104]
    assert all(trace.valid.all() for trace in found)


def test_watch_waits_through_an_outage_and_counts_the_gap() -> None:
    clock, stream = Clock(100.0), RateStream()
    found = list(watch(Scripted(clock, range(103, 106)), 9, stream=stream, clock=clock, sleep=clock.sleep))
    assert [trace.start_s for trace in found] == [100, 101, 106, 107, 108]
    assert stream.faults == Faults(gap=4)


def test_watch_gives_up_when_patience_ends() -> None:
    clock = Clock(100.0)
    with pytest.raises(SourceError, match="gone"):
        list(watch(Scripted(clock, range(103, 999)), 500, patience_s=20, clock=clock, sleep=clock.sleep))
    assert 120 < clock.now_s < 130


@pytest.mark.parametrize(("fails", "end_s"), [(range(100, 999), 101), (range(107, 999), 113)])
def test_watch_reports_a_missing_source_at_once_and_a_lost_one_at_the_end(fails: range, end_s: float) -> None:
    clock = Clock(100.0)
    with pytest.raises(SourceError, match="gone"):
        list(watch(Scripted(clock, fails), 10, clock=clock, sleep=clock.sleep))
    assert clock.now_s < end_s


def test_watch_skips_the_seconds_of_a_stall() -> None:
    clock, stream = Clock(100.0), RateStream()
    found = list(watch(Scripted(clock, stalls={102: 3.3}), 9, stream=stream, clock=clock, sleep=clock.sleep))
    assert [trace.start_s for trace in found] == [100, 101, 105, 106, 107, 108]
    assert stream.faults.gap == 3


class Compiling(RateStream):
    """A stream of a new installation: its third reading takes seven seconds."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock, self.pushed = clock, 0

    def push(self, reading: NodeReading) -> Trace | None:
        self.pushed += 1
        if self.pushed == 3:
            self.clock.sleep(7)
        return super().push(reading)


def test_watch_gives_all_seconds_although_the_loops_compile_first() -> None:
    clock = Clock(100.0)
    source = Scripted(clock, stalls={100: 3.0})
    found = list(watch(source, 5, stream=Compiling(clock), clock=clock, sleep=clock.sleep))
    assert len(found) == 5
    assert found[-1].end_s - found[0].start_s == 5


def test_the_ring_becomes_readings_with_jobs() -> None:
    first, second = RingReader("n1", "ring").read(RING)
    assert (first.time_s, first.cpus) == (10.25, (0, 1))
    np.testing.assert_array_equal(second.seconds[0], [1.5, 0, 0.5, 9, 0, 0, 0, 0])
    assert first.jobs == (JobCpus("a b", (0, 1)),)
    assert second.jobs == ()


def test_a_block_without_samples_has_no_name_of_a_node() -> None:
    reader, threads = RingReader("n1", "ring"), b"cpu0 1 1 1 1\n"
    reader.reading(1.0, threads, b'twin_node_info{node="n1"} 1\n', b"")
    with pytest.raises(SourceError, match="it says that it is n2, and it was n1 before"):
        reader.reading(2.0, threads, b'twin_node_info{node="n2"} 1\n', b"")
    assert reader.reading(3.0, threads, b"", b"").time_s == 3.0
    with pytest.raises(SourceError, match="it says that it is n2"):
        reader.reading(4.0, threads, b'twin_node_info{node="n2"} 1\n', b"")


@pytest.mark.parametrize(
    "line",
    [
        b"cpu1 200 0 50\n",  # too few counts
        b"cpu1 200 0 50 750 0 0 0 0 0 x\n",
        b"cpu01 200 0 50 750 0 0 0 0 0 0\n",
        b"cpu0 200 0 50 750 0 0 0 0 0 0\n",  # a thread again
        b"cpu1 200 0 50 750\n",  # of another width
        b"cpu1 200 0 50 75",  # cut short
    ],
)
def test_a_thread_whose_line_is_odd_is_left_out(line: bytes) -> None:
    (reading,) = RingReader("n1", "ring").read(b"t 1\ncpu0 100 0 50 850 0 0 0 0 0 0\n" + line)
    assert reading.cpus == (0,)
    np.testing.assert_array_equal(reading.seconds, [[1, 0, 0.5, 8.5, 0, 0, 0, 0]])


counts = st.lists(st.integers(0, 10**19), min_size=4, max_size=12)


@given(st.lists(st.tuples(st.integers(0, 300), st.sampled_from([b" ", b"  "])), max_size=6), counts, st.data())
def test_the_scan_agrees_with_parsing_line_by_line(threads, width, data) -> None:
    """Ticks beyond what a float holds exactly are equal all the same."""
    lines = b""
    for cpu, blank in threads:
        row = data.draw(st.lists(st.integers(0, 10**19), min_size=len(width), max_size=len(width)))
        lines += b"cpu%d" % cpu + b"".join(blank + b"%d" % tick for tick in row) + b"\n"
    slow = sorted(parse_cpu_lines(lines, []).items())
    reading = RingReader("n1", "ring").reading(1.0, lines, b"", b"")
    assert reading.cpus == tuple(cpu for cpu, _ in slow)
    expected = [[float(tick) / 100 for tick in row[:8]] for _, row in slow]
    np.testing.assert_allclose(reading.seconds, np.array(expected).reshape(reading.seconds.shape), rtol=1e-15)


SAMPLES = b"""\
twin_memory_total_bytes 1000
twin_memory_available_bytes 250
twin_pressure_seconds_total{resource="io",share="some"} 2500000e-6
"""


def newer_block(time_s: float, samples: bytes = SAMPLES) -> bytes:
    """A block as this version's exporter writes it."""
    return b"t %.3f\ncpu0 100 0 50 850 0 0 0 0\ncpu1 1 0 5 8 0 0 0 0\n%bjob slurm 7 0-1\n" % (time_s, samples)


def test_a_ring_has_the_operands_of_node_channels() -> None:
    text = newer_block(1) + newer_block(2, SAMPLES.replace(b" 250\n", b" 260\n"))
    first, second = RingReader("n1", "ring").read(text)
    memory, io = NODE.index("memory_used"), NODE.index("io_pressure")
    assert first.operands[memory].tolist() == [250, 1000]
    assert second.operands[memory].tolist() == [260, 1000]
    assert second.operands[io, 0] == 2.5
    assert np.isnan(second.operands[NODE.index("cpu_pressure")]).all()
    assert second.cpus == (0, 1)
    assert second.jobs == (JobCpus("7", (0, 1)),)


def test_the_ring_of_an_older_exporter_has_unknown_node_channels() -> None:
    for reading in RingReader("n1", "ring").read(RING):
        assert np.isnan(reading.operands).all()


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"gpu 0 1 2\n", b""), (b"twin_something{ 1\n", b""), (b"", b"gpu 0 1 2\n"), (b"gpu\ngpu\n", b"x y\n")],
)
def test_lines_that_a_newer_exporter_adds_are_skipped(before: bytes, after: bytes) -> None:
    for time_s in (1, 2):
        (reading,) = RingReader("n1", "ring").read(newer_block(time_s, before + SAMPLES) + after)
        assert reading.operands[NODE.index("memory_used")].tolist() == [250, 1000]
        assert (reading.cpus, reading.jobs) == ((0, 1), (JobCpus("7", (0, 1)),))


def test_a_sample_line_that_is_cut_off_is_ignored() -> None:
    (reading,) = RingReader("n1", "ring").read(b"t 1\ncpu0 1 2 3 4\ntwin_memory_total_bytes 1000\ntwin_memory_avail")
    assert reading.operands[NODE.index("memory_used"), 1] == 1000
    (reading,) = RingReader("n1", "ring").read(b"t 1\ncpu0 1 2 3 4\ntwin_memory_total_bytes 10")
    assert np.isnan(reading.operands).all()


def test_an_older_reader_gets_the_threads_and_jobs_of_a_newer_ring() -> None:
    """Before there were sample lines: a block was threads up to the first job, and all after that were jobs."""
    block = newer_block(1)
    jobs_at = block.find(b"\njob ") + 1
    faults: list[str] = []
    assert sorted(parse_cpu_lines(block[len(b"t 1.000\n") : jobs_at], faults)) == [0, 1]
    assert all(line.startswith(b"job ") for line in block[jobs_at:].splitlines())


def test_node_channels_pass_from_a_real_exporter_through_its_ring_and_its_page(tmp_path: Path) -> None:
    """Kernel files -> our exporter over HTTP -> the same readings by both ways, and from the files themselves."""
    (tmp_path / "proc/pressure").mkdir(parents=True)
    (tmp_path / "proc/stat").write_text("cpu  3 0 0 3\ncpu0 100 0 50 850 1 2 3 4 0 0\nintr 0\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 250 kB\n")
    for i, resource in enumerate(("cpu", "memory", "io")):
        (tmp_path / "proc/pressure" / resource).write_text(
            f"some avg10=0.00 avg60=0.00 avg300=0.00 total={i + 1}000000\n"
        )
    agent = Agent(AgentSettings("n1", str(tmp_path)), lambda *_: None)
    server = Server("127.0.0.1", 0, WebConfig(), Routes("n1", agent.pieces, agent.ring_since))
    server.start()
    try:
        endpoint = Endpoint(f"http://127.0.0.1:{server.port}")
        (by_ring,) = Exporter(endpoint).readings()
        (by_page,) = Exporter(endpoint, pages=True).readings()
    finally:
        server.close()
    (by_files,) = Host(tmp_path).readings()
    expected = {"memory_used": 250 * 1024, "cpu_pressure": 1.0, "memory_pressure": 2.0, "io_pressure": 3.0}
    for reading in (by_ring, by_page, by_files):
        firsts = zip(NODE.names, reading.operands[:, 0].tolist(), strict=True)
        known = {name: value for name, value in firsts if not isnan(value)}
        assert known == expected


def write_job(root: Path, cpu_usec: int, anon: int, version: int = 2) -> None:
    """A Slurm job on threads 0 and 1 that used CPU time and memory."""
    if version == 2:
        files = {
            "system.slice/slurmstepd.scope/job_7/cpuset.cpus": "0-1",
            "system.slice/slurmstepd.scope/job_7/cpuset.cpus.effective": "0-1",
            "system.slice/slurmstepd.scope/job_7/cpu.stat": f"user_usec {cpu_usec}\nsystem_usec 0\nthrottled_usec 0",
            "system.slice/slurmstepd.scope/job_7/memory.stat": f"anon {anon}\npgfault {anon}\npgmajfault 0",
            "system.slice/slurmstepd.scope/job_7/memory.max": "1000",
            "cgroup.controllers": "cpu memory",
        }
    else:
        files = {
            "cpuset/cpuset.cpus": "0-3",
            "cpuset/slurm/uid_1/job_7/cpuset.cpus": "0-1",
            "cpuacct/slurm/uid_1/job_7/cpuacct.usage_user": f"{cpu_usec}000",
            "cpuacct/slurm/uid_1/job_7/cpuacct.usage_sys": "0",
            "memory/slurm/uid_1/job_7/memory.stat": f"rss 1\npgfault 1\ntotal_rss {anon}\ntotal_cache 9999\n"
            f"total_pgfault {anon}\ntotal_pgmajfault 0",
            "memory/slurm/uid_1/job_7/memory.limit_in_bytes": "1000",
        }
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


@pytest.mark.parametrize("version", [1, 2])
def test_job_channels_pass_from_cgroups_through_ring_page_and_host(tmp_path: Path, version: int) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 250 kB\n")
    now = [1000.0]
    agent = Agent(AgentSettings("n1", str(tmp_path)), lambda *_: None, lambda: now[0])
    host = Host(tmp_path, clock=lambda: now[0])
    ring, page = RingReader("n1", "ring"), PageReader("n1")
    streams = {name: RateStream() for name in ("ring", "page", "host")}
    for second, (cpu_usec, anon) in enumerate([(0, 250), (500_000, 750)]):
        idle = 1000 + 100 * second
        (tmp_path / "proc/stat").write_text(f"cpu  0 0 0 0\ncpu0 0 0 0 {idle} 0 0 0 0\ncpu1 0 0 0 {idle} 0 0 0 0\n")
        write_job(tmp_path, cpu_usec, anon, version)
        now[0] = 1000.0 + second
        text = agent.scrape()
        readings = {
            "ring": ring.read(b"".join(agent.ring_since(now[0]) or ()))[-1],
            "page": page.read(text, now[0]),
            "host": host.readings()[0],
        }
        traces = {name: streams[name].push(reading) for name, reading in readings.items()}
    for trace in traces.values():
        assert trace is not None
        assert trace.job_channels is not None
        assert trace.job_channels.jobs == ("7",)
        values = dict(zip(JOB.names, trace.job_channels.values[0, 0].tolist(), strict=True))
        assert values["job_cpu"] == 0.25  # half a second of two threads
        assert values["job_memory"] == 0.75  # files in memory do not count
        assert values["job_system"] == 0.0
        assert values["job_page_faults"] == pytest.approx(500 / 600)  # 500 in a second; 50 % is 100
        assert isnan(values["job_io_pressure"])  # the file is missing
        assert isnan(values["job_oom_kills"])


LONG_VALUE = b"stat slurm 2 4 9 " + b"7" * 1000 + b"\n"


def test_the_counters_of_jobs_that_cannot_be_read_are_unknown_and_the_rest_is_not() -> None:
    block = b"t 10\ncpu0 1 1 1 1\njob slurm 1 0\njob slurm 2 0\n"
    heading = b'stats twin_job_cpu_allocated of_a_newer_version{x="y"} twin_job_oom_kills_total\n'
    (reading,) = RingReader("n1", "ring").read(block + heading + b"stat slurm 2 4 9 7\n")
    assert reading.job_operands is not None
    oom, cpu = JOB.index("job_oom_kills"), JOB.index("job_cpu")
    np.testing.assert_equal(reading.job_operands[:, oom, 0], [np.nan, 7])
    np.testing.assert_equal(reading.job_operands[:, cpu, 1], [np.nan, 4])
    for damaged in (
        b"stat slurm 2 4 9\n",
        b"stat slurm 2 4 9 x\n",
        b"what slurm 2 4 9 7\n",
        b"",
        b"stat slurm 2 4 9 7",
        LONG_VALUE,
    ):
        (reading,) = RingReader("n1", "ring").read(block + heading + damaged)
        assert reading.job_operands is None
        assert [job.job for job in reading.jobs] == ["1", "2"]


def test_the_ring_of_an_exporter_without_counters_of_jobs_has_unknown_job_channels() -> None:
    (reading,) = RingReader("n1", "ring").read(b"t 10\ncpu0 1 1 1 1\njob slurm 1 0\n")
    assert reading.job_operands is None
    assert [job.job for job in reading.jobs] == ["1"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"<html>", "not the ring of an exporter"),
        (b"t soon\ncpu0 1 1 1 1\n", "b'soon' is not a time"),
        (b"t 10\ncpu0 1 1 1 1\njob slurm\n", "not the line of a job"),
        (b"t 10\ncpu0 1 1 1 1\njob slurm 1 0-x\n", "not a list of CPUs"),
    ],
)
def test_an_invalid_ring_is_reported(text: bytes, reason: str) -> None:
    with pytest.raises(SourceError, match=rf"n1/ring: .*{reason}"):
        RingReader("n1", "n1/ring").read(text)


def test_readings_of_a_ring_come_once_and_without_gaps(server: Any) -> None:
    server.say(PAGE + HAS_RING)
    server.say(RING)
    server.say(RING.replace(b"t 10.250", b"t 12.250").replace(b"t 11.250", b"t 13.250"))
    server.say(RING.replace(b"t 10.250", b"t 13.250").replace(b"t 11.250", b"t 14.250"))
    exporter = Exporter(Endpoint(server.url), clock=lambda: 11.5)
    given = [[reading.time_s for reading in exporter.readings()] for _ in range(3)]
    assert given == [[11.25], [12.25, 13.25], [14.25]]
    assert [path for path, _ in server.requests] == [
        "/metrics",
        "/ring?since=9.500",
        "/ring?since=11.251",
        "/ring?since=13.251",
    ]


def test_an_exporter_without_a_ring_is_read_by_its_page(server: Any) -> None:
    server.say(PAGE)
    exporter = Exporter(Endpoint(server.url), clock=lambda: 7.0)
    (reading,) = exporter.readings()
    assert (reading.node, reading.time_s, reading.cpus) == ("n1", 7.0, (0,))
    with pytest.raises(SourceError, match="keeps no ring"):
        exporter.counters(0, 10)


def test_the_history_of_an_exporter_is_its_ring(server: Any) -> None:
    server.say(PAGE + HAS_RING)
    server.say(RING)
    (counters,) = Exporter(Endpoint(server.url)).counters(10, 11)
    assert (counters.node, counters.times_s.tolist()) == ("n1", [10.25])


def test_a_page_that_is_not_exposition_text_is_a_source_error_with_the_line(server: Any) -> None:
    server.say("<html>\n")
    with pytest.raises(SourceError, match=rf"{server.url}/metrics:1: '<html>' does not begin with a metric name"):
        Exporter(Endpoint(server.url)).readings()


def test_a_host_is_read_below_its_root(tmp_path: Path) -> None:
    (tmp_path / "proc/pressure").mkdir(parents=True)
    (tmp_path / "proc/stat").write_text(
        "cpu  3 0 0 3\ncpu0 100 0 50 850 1 2 3 4 0 0\ncpu2 1 2 3 4 5 6 7 8 0 0\nintr 0\n"
    )
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 250 kB\n")
    (tmp_path / "proc/pressure/io").write_text(
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"
    )
    (reading,) = Host(tmp_path, "n1", clock=lambda: 5.0).readings()
    assert (reading.node, reading.time_s, reading.cpus) == ("n1", 5.0, (0, 2))
    np.testing.assert_array_equal(reading.seconds[1], np.arange(1, 9) / 100)
    operands = dict(zip(NODE.names, reading.operands.tolist(), strict=True))
    assert operands["memory_used"] == [250 * 1024, 1000 * 1024]
    assert operands["io_pressure"][0] == 2.5
    assert np.isnan(operands["cpu_pressure"]).all()  # this kernel has no such file


def test_a_host_without_proc_says_which_file(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"proc/stat: No such file"):
        Host(tmp_path).readings()
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text("intr 0\n")
    with pytest.raises(SourceError, match=r"proc/stat: it has no line of a single thread"):
        Host(tmp_path).readings()


@pytest.mark.slow
def test_this_host_gives_a_second_that_sums_to_one() -> None:
    (trace,) = watch(Host(), 1)
    assert trace.valid.any()
    np.testing.assert_allclose(trace.values[trace.valid].sum(axis=1), 1, atol=1e-6)
