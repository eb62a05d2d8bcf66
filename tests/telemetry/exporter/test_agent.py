"""The page: its golden text, collectors that fail and recover, and the samples of the ring."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clustertwin.telemetry.exporter.collectors.memory import MemoryCollector
from clustertwin.telemetry.exporter.text.text_format import to_rows

GOLDEN = Path(__file__).parent / "golden.prom"


def success(text: bytes) -> dict[str, float]:
    rows = to_rows(text.decode())
    return {row["labels"]["collector"]: row["value"] for row in rows if row["name"].endswith("collector_success")}


def still(text: bytes) -> str:
    """Without what differs from run to run: durations, versions, and what zlib makes of a sample."""
    text_ = re.sub(r"^(\w+(?:duration_seconds|ring_bytes)(?:\{.*\})?) \S+$", r"\1 0", text.decode(), flags=re.M)
    return re.sub(r'(version|python)="[^"]*"', r'\1=""', text_)


def full_tree(tree):
    job = "system.slice/slurmstepd.scope/job_42"
    tree.node().v2().group(
        job,
        cpuset_cpus="0-1",
        cpuset_cpus_effective="0-1",
        cpu_stat="usage_usec 3\nuser_usec 2\nsystem_usec 1",
        memory_current="4096",
        memory_max="8192",
        memory_stat="anon 2000\nfile 900\nkernel_stack 1000\nslab_reclaimable 96\npgfault 9\npgmajfault 4",
        memory_events="low 0\nhigh 0\nmax 3\noom 1\noom_kill 1",
        io_stat="8:0 rbytes=10 wbytes=20 rios=1 wios=1",
        cpu_pressure="some avg10=0.00 avg60=0.00 avg300=0.00 total=7",
    )
    tree.group(f"{job}/step_0/user/task_0", cgroup_procs="11")
    tree.process(11, uid=1234)
    tree.group("user.slice/user-1000.slice", cpu_stat="usage_usec 3\nuser_usec 2\nsystem_usec 1")
    return tree


def test_the_whole_text_is_the_golden_one(tree, agent):
    """After a wanted change: write `still(agent().scrape())` to golden.prom and read the difference."""
    full_tree(tree)
    assert still(agent().scrape()) == GOLDEN.read_text()


def test_a_broken_collector_leaves_the_scrape_alive_and_is_logged_once(tree, agent, logged):
    node = agent()
    tree.node()
    (tree.root / "proc/meminfo").unlink()
    for _ in range(3):
        text = node.scrape()
        assert success(text)["memory"] == 0
        assert success(text)["cpu"] == 1
        assert b"twin_cpu_seconds_total{" in text
    tree.write("proc/meminfo", "MemTotal: 1 kB\n")
    assert success(node.scrape())["memory"] == 1
    assert [level for level, _ in logged] == ["warning", "info"]
    assert "meminfo" in logged[0][1]


def test_a_collector_that_raises_leaves_the_scrape_alive(tree, agent, monkeypatch):
    tree.node()
    node = agent()
    monkeypatch.setattr(MemoryCollector, "collect", lambda *_: 1 / 0)
    assert success(node.scrape())["memory"] == 0


def test_an_empty_root_still_gives_a_scrape(agent):
    told = success(agent().scrape())
    unread = dict.fromkeys(("cpu", "memory", "disk", "paging", "network"), 0)
    assert told == {**unread, "pressure": 1, "jobs": 1}


def test_collectors_can_be_left_out(tree, agent):
    tree.node()
    text = agent(collectors=("cpu",)).scrape()
    assert success(text) == {"cpu": 1}
    assert b"twin_memory" not in text


def test_the_ring_holds_the_lines_of_a_scrape(tree, agent):
    full_tree(tree)
    node = agent(clock=lambda: 1234.5)
    node.scrape()
    assert b"".join(node.ring_since(0)) == b"t 1234.500\n" + SAMPLE


SAMPLE = b"""\
cpu0 1234 4 200 4000 50 0 9 2 0 0
cpu1 66 0 60 5000 20 0 0 0 0 0
twin_node_info{node="n01"} 1
twin_context_switches_total 99
twin_tasks_running 3
twin_tasks_blocked 1
twin_memory_total_bytes 16777216
twin_memory_available_bytes 8388608
twin_pressure_seconds_total{resource="cpu",share="some"} 1500000e-6
twin_pressure_seconds_total{resource="io",share="some"} 1500000e-6
twin_pressure_seconds_total{resource="memory",share="some"} 1500000e-6
twin_major_faults_total 17
twin_swap_pages_total{direction="in"} 2
twin_swap_pages_total{direction="out"} 5
twin_disk_read_bytes_total{device="sda"} 1048576
twin_disk_read_bytes_total{device="nvme0n1"} 8192
twin_disk_written_bytes_total{device="sda"} 2097152
twin_disk_written_bytes_total{device="nvme0n1"} 0
twin_disk_io_seconds_total{device="sda"} 3000e-3
twin_disk_io_seconds_total{device="nvme0n1"} 3e-3
twin_network_received_bytes_total{device="eth0"} 1000
twin_network_sent_bytes_total{device="eth0"} 500
twin_network_errors_total{device="eth0",direction="received"} 2
twin_network_errors_total{device="eth0",direction="sent"} 1
job slurm 42 0-1
stats twin_job_cpu_allocated twin_job_cpu_seconds_total{mode="user"} twin_job_cpu_seconds_total{mode="system"} \
twin_job_memory_unreclaimable_bytes twin_job_memory_limit_bytes twin_job_major_faults_total \
twin_job_page_faults_total twin_job_oom_kills_total twin_job_pressure_seconds_total{resource="cpu",share="some"} \
twin_job_read_bytes_total twin_job_written_bytes_total
stat slurm 42 2 2e-6 1e-6 3000 8192 4 9 1 7e-6 10 20
"""


def test_a_sample_without_a_scrape_holds_the_same_lines(tree, agent):
    full_tree(tree)
    node = agent(clock=lambda: 1234.5)
    assert b"".join(node.ring_since(0)) == b"t 1234.500\n" + SAMPLE


@pytest.mark.parametrize("sampled_by", ["scrape", "tick"])
def test_a_broken_collector_is_missing_from_the_ring_and_the_threads_are_there(tree, agent, sampled_by):
    full_tree(tree)
    now = [1000.0]
    node = agent(clock=lambda: now[0])
    node.scrape()
    (tree.root / "proc/meminfo").unlink()
    now[0] = 1002.0
    getattr(node, sampled_by)()
    newest = b"".join(node._ring.since(1002.0))
    assert b"twin_memory" not in newest
    assert newest.count(b"twin_pressure") == 3
    assert b"cpu1 " in newest


def ring_times(node) -> list[float]:
    """What is kept; to ask for it by `ring_since` would add to it."""
    return [float(line[2:]) for line in b"".join(node._ring.since(0)).splitlines() if line.startswith(b"t ")]


def test_without_scrapes_the_timer_samples_each_second(tree, agent):
    tree.node()
    now = [1000.0]
    node = agent(clock=lambda: now[0])
    for i in range(50):
        now[0] = 1000 + i / 10
        node.tick()
    assert ring_times(node) == [1000.0, 1001.0, 1002.0, 1003.0, 1004.0]


def test_the_timer_waits_for_a_regular_scraper_that_is_a_little_late(tree, agent):
    tree.node()
    now = [1000.0]
    node = agent(clock=lambda: now[0])
    for second in range(5):
        now[0] = 1000 + second + 0.02 * second  # each scrape 20 ms later than a second after the last
        node.scrape()
        for tenth in range(1, 10):
            now[0] = 1000 + second + 0.02 * second + tenth / 10
            node.tick()
    assert len(ring_times(node)) == 5


def test_a_request_for_the_ring_takes_a_sample_and_delays_the_timer(tree, agent):
    tree.node()
    now = [1000.4]
    node = agent(clock=lambda: now[0])
    given = []
    for second in range(4):
        now[0] = 1000.4 + second
        given.append(b"".join(node.ring_since(now[0] - 0.5)).splitlines()[0])
        for tenth in range(1, 10):
            now[0] = 1000.4 + second + tenth / 10
            node.tick()
    assert given == [b"t 1000.400", b"t 1001.400", b"t 1002.400", b"t 1003.400"]
    assert ring_times(node) == [1000.4, 1001.4, 1002.4, 1003.4]


def test_with_a_scrape_every_second_a_request_for_the_ring_takes_no_sample(tree, agent):
    tree.node()
    now = [1000.0]
    node = agent(clock=lambda: now[0])
    for second in range(4):
        now[0] = 1000.0 + second
        node.scrape()
        now[0] += 0.6
        node.ring_since(0)
    assert ring_times(node) == [1000.0, 1001.0, 1002.0, 1003.0]


def test_late_ticks_do_not_drift(tree, agent):
    tree.node()
    now = [1000.0]
    node = agent(clock=lambda: now[0])
    for _ in range(1000):
        now[0] += node.tick() + 0.003  # every wake-up comes 3 ms late
    assert ring_times(node)[-1] - ring_times(node)[0] == pytest.approx(len(ring_times(node)) - 1, abs=0.01)


def test_when_the_scraper_stops_the_timer_continues_at_its_phase(tree, agent):
    tree.node()
    now = [1000.5]
    node = agent(clock=lambda: now[0])
    node.scrape()
    for _ in range(4):
        now[0] += node.tick()
        node.tick()
    assert ring_times(node) == [1000.5, 1001.75, 1002.5, 1003.5, 1004.5]


def test_a_clock_that_is_set_back_does_not_stop_the_timer(tree, agent):
    tree.node()
    now = [5000.0]
    node = agent(clock=lambda: now[0])
    node.tick()
    now[0] = 1000.0
    assert node.tick() <= 1.25
    assert ring_times(node)[-1] == 1000.0


def test_a_failing_kernel_file_does_not_stop_the_timer(agent):
    node = agent()
    assert 0 < node.tick() <= 1.25
    assert ring_times(node) == []


def test_with_ring_seconds_0_no_ring_is_kept(tree, agent):
    tree.node()
    node = agent(ring_seconds=0.0)
    assert node.tick() == 1.0
    assert b"ring" not in node.scrape()
    assert node.ring_since(0) is None
