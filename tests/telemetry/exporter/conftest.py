"""A small /proc and /sys for tests, and an exporter that serves it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clustertwin.telemetry.exporter.agent import Agent, AgentSettings
from clustertwin.telemetry.exporter.http.routes import Routes
from clustertwin.telemetry.exporter.http.server import Server
from clustertwin.telemetry.exporter.http.webconfig import WebConfig

STAT = """\
cpu  1300 4 260 9000 70 0 9 2 0 0
cpu0 1234 4 200 4000 50 0 9 2 0 0
cpu1 66 0 60 5000 20 0 0 0 0 0
intr 12 0 3
ctxt 99
btime 1731700000
processes 12
procs_running 3
procs_blocked 1
softirq 5 1 1
"""
VMSTAT = """\
nr_free_pages 256
pgmajfault 17
pswpin 2
pswpout 5
oom_kill 1
"""
NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo:    4000  40    0    0    0     0          0         0     4000      40    0    0    0     0       0        0
  eth0:    1000  10    2    0    0     0          0         0      500       5    1    0    0     0       0        0
"""
MEMINFO = """\
MemTotal:       16384 kB
MemFree:         1024 kB
MemAvailable:    8192 kB
Buffers:            0 kB
HugePages_Total:     0
SwapTotal:       2048 kB
"""
PRESSURE = """\
some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000
full avg10=0.00 avg60=0.00 avg300=0.00 total=2
"""
DISKSTATS = """\
   7       0 loop0 5 0 40 1 0 0 0 0 0 1 1
   8       0 sda 100 0 2048 1500 200 0 4096 2500 1 3000 4000 0 0 0 0 0 0
   8       1 sda1 100 0 2048 1500 200 0 4096 2500 1 3000 4000 0 0 0 0 0 0
 259       0 nvme0n1 7 0 16 3 0 0 0 0 0 3 3
   8      16 sdb 0 0 0 0 0 0 0 0 0 0 0
"""


class Tree:
    """A file-system root under construction."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str | bytes) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)

    def node(self) -> Tree:
        """The files that are no job's."""
        self.write("proc/stat", STAT)
        self.write("proc/meminfo", MEMINFO)
        self.write("proc/diskstats", DISKSTATS)
        self.write("proc/vmstat", VMSTAT)
        self.write("proc/net/dev", NET_DEV)
        for resource in ("cpu", "io", "memory"):
            self.write(f"proc/pressure/{resource}", PRESSURE)
        return self

    def v2(self, below: str = "") -> Tree:
        self.write(f"sys/fs/cgroup/{below}cgroup.controllers", "cpuset cpu io memory\n")
        return self

    def group(self, path: str, **files: str) -> str:
        """A cgroup; keyword `cpuset_cpus` is the file cpuset.cpus. Its path, for more."""
        home = f"sys/fs/cgroup/{path}"
        for name, text in files.items():
            self.write(f"{home}/{name.replace('_', '.')}", text + "\n")
        (self.root / home).mkdir(parents=True, exist_ok=True)
        return home

    def process(self, pid: int, uid: int) -> None:
        self.write(f"proc/{pid}/status", f"Name:\tfit\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "root")


@pytest.fixture
def logged() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def agent(tree: Tree, logged: list[tuple[str, str]]) -> Callable[..., Agent]:
    """Makes an agent of the tree; its log lines go to `logged`."""
    return lambda clock=lambda: 1000.0, **settings: Agent(
        AgentSettings("n01", str(tree.root), **settings), lambda *line: logged.append(line), clock
    )


@pytest.fixture
def serve(agent: Callable[..., Agent]) -> Iterator[Callable[..., Server]]:
    """Starts a server on a free port for the tree; stops it after the test."""
    running: list[Server] = []

    def start(config: WebConfig | None = None, **settings: object) -> Server:
        config = config or WebConfig()
        node = agent(**settings)
        server = Server("127.0.0.1", 0, config, Routes("n01", node.pieces, node.ring_since, users=config.users))
        server.start()
        running.append(server)
        return server

    yield start
    for server in running:
        server.close()
