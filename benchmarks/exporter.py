"""CPU time per scrape and memory of `twin exporter`, beside node_exporter's cpu collector, in one run.

    python benchmarks/exporter.py [--scrapes 100] [--rounds 5] [--json]

Both are scraped over HTTP with keep-alive, in turns, on this host and on generated trees of 128 and 256 threads with
16 Slurm jobs. Between two scrapes the counters of a tree advance by a second. CPU time is the user and system time of
the process, HTTP and the ring included. Our exporter runs twice: with all collectors, and with the cpu collector only,
like node_exporter.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from clustertwin.telemetry.exporter.collectors import COLLECTORS

JOBS = 16
TICKS = (10**8, 0, 10**7, 10**9, 10**5, 0, 10**5, 0, 0, 0)  # at most, at the start, in the kernel's order
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=%d\n"


class Tree:
    """The /proc and /sys of a node with `threads` CPUs, divided among Slurm jobs."""

    def __init__(self, root: Path, threads: int) -> None:
        self.root, self.rng, self.seconds = root, random.Random(threads), 0
        self.ticks = [[self.rng.randrange(most) if most else 0 for most in TICKS] for _ in range(threads)]
        (root / "proc/pressure").mkdir(parents=True)
        (root / "proc/meminfo").write_text(Path("/proc/meminfo").read_text())
        (root / "proc/diskstats").write_text("   8       0 sda 1 2 3 4 5 6 7 8 0 10 11\n")
        for name in ("cpu", "io", "memory"):
            (root / f"proc/pressure/{name}").write_text(PRESSURE % (123456, 12345))
        for cpu in range(threads):
            topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
            topology.mkdir(parents=True)
            (topology / "physical_package_id").write_text("0\n")
            (topology / "core_id").write_text(f"{cpu}\n")
        scope = root / "sys/fs/cgroup/system.slice/slurmstepd.scope"
        self.jobs = [scope / f"job_{4000 + i}" for i in range(JOBS)]
        for i, job in enumerate(self.jobs):
            job.mkdir(parents=True)
            for name in ("cpuset.cpus", "cpuset.cpus.effective"):
                (job / name).write_text(f"{i * threads // JOBS}-{(i + 1) * threads // JOBS - 1}\n")
            step = job / "step_0/user/task_0"
            step.mkdir(parents=True)
            (step / "cgroup.procs").write_text(f"{1000 + i}\n")
            (root / f"proc/{1000 + i}").mkdir()
            (root / f"proc/{1000 + i}/status").write_text("Name:\tfit\nUid:\t5000\t5000\t5000\t5000\n")
        (root / "sys/fs/cgroup/cgroup.controllers").write_text("cpuset cpu memory\n")
        self.advance()

    def advance(self) -> None:
        """One second passes: half the threads compute, some idle, some wait for disks."""
        self.seconds += 1
        for row in self.ticks:
            kind = self.rng.random()
            for column, ticks in ((0, 98), (2, 2)) if kind < 0.5 else ((3, 100),) if kind < 0.8 else ((4, 60), (2, 40)):
                row[column] += ticks
        lines = [f"cpu{i} {' '.join(map(str, row))}\n" for i, row in enumerate(self.ticks)]
        total = " ".join(str(sum(column)) for column in zip(*self.ticks, strict=True))
        stat = f"cpu  {total}\n{''.join(lines)}intr 1 {'0 ' * 500}\nctxt 1\nbtime 1731700000\nprocesses 1\n"
        (self.root / "proc/stat").write_text(stat)
        for i, job in enumerate(self.jobs):
            user, system = 900_000 * self.seconds + i, 100_000 * self.seconds + i
            used = f"usage_usec {user + system}\nuser_usec {user}\nsystem_usec {system}\nthrottled_usec 0\n"
            (job / "cpu.stat").write_text(used)
            for name in ("memory.current", "memory.peak"):
                (job / name).write_text(f"{10**9 + 4096 * self.seconds}\n")
            for name in ("cpu.pressure", "memory.pressure"):
                (job / name).write_text(PRESSURE % (1000 * self.seconds, 10 * self.seconds))


class Server:
    """A server under measurement, with one kept-alive connection to it."""

    def __init__(self, name: str, command: list[str], port: int) -> None:
        self.name = name
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        for _ in range(100):
            try:
                self.scrape()
                break
            except OSError:
                self.http.close()
                time.sleep(0.1)
        else:
            raise SystemExit(f"{name} does not answer on port {port}")

    def scrape(self) -> int:
        # node_exporter compresses if the client accepts it, which costs CPU time: request plain text.
        self.http.request("GET", "/metrics", headers={"Accept-Encoding": "identity"})
        return len(self.http.getresponse().read())

    def cpu_s(self) -> float:
        """The process's own CPU clock: user and system time of all its threads, to the nanosecond."""
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def stop(self) -> None:
        self.http.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(10)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def servers(root: str) -> list[Server]:
    port = free_port()
    twin = [sys.executable, "-m", "clustertwin.telemetry.exporter", f"--path.rootfs={root}"]
    started = [Server("twin exporter, all", [*twin, f"--web.listen-address=127.0.0.1:{port}"], port)]
    port = free_port()
    cpu_only = [f"--no-collector.{name}" for name in COLLECTORS if name != "cpu"]
    started.append(Server("twin exporter, cpu", [*twin, *cpu_only, f"--web.listen-address=127.0.0.1:{port}"], port))
    if shutil.which("prometheus-node-exporter"):
        port = free_port()
        node = ["prometheus-node-exporter", "--collector.disable-defaults", "--collector.cpu"]
        paths = [f"--path.procfs={os.path.join(root, 'proc')}", f"--path.sysfs={os.path.join(root, 'sys')}"]
        quiet = ["--web.disable-exporter-metrics", f"--web.listen-address=127.0.0.1:{port}"]
        started.append(Server("node_exporter, cpu", node + paths + quiet, port))
    return started


def measure(where: str, root: str, scrapes: int, rounds: int, tree: Tree | None) -> list[dict[str, object]]:
    """The rows of one place, ours first. The ring holds 600 samples when memory is measured."""
    measured = servers(root)
    size = {server.name: server.scrape() for server in measured}
    spent: dict[str, list[float]] = {name: [] for name in size}
    try:
        for _ in range(rounds):
            for server in measured:
                total_s = 0.0
                for _ in range(scrapes):
                    if tree:
                        tree.advance()
                    before_s = server.cpu_s()
                    server.scrape()
                    total_s += server.cpu_s() - before_s
                spent[server.name].append(total_s / scrapes * 1e6)
        for _ in range(max(0, 600 - scrapes * rounds)):
            if tree:
                tree.advance()
            measured[0].scrape()
        return [
            {
                "where": where,
                "server": server.name,
                "us_per_scrape": round(min(spent[server.name]), 1),
                "us_per_scrape_rounds": [round(us, 1) for us in spent[server.name]],
                "percent_of_a_core_at_1hz": round(min(spent[server.name]) / 1e4, 4),
                "rss_mb": round(server.rss_mb(), 1),
                "bytes": size[server.name],
            }
            for server in measured
        ]
    finally:
        for server in measured:
            server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scrapes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5, help="the best of these is reported")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = measure("this host", "/", options.scrapes, options.rounds, None)
    for threads in (128, 256):
        # In memory, like the files of the kernel: the disk must not be measured.
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as directory:
            tree = Tree(Path(directory), threads)
            rows += measure(f"{threads} threads, {JOBS} jobs", directory, options.scrapes, options.rounds, tree)
    if options.json:
        print(json.dumps(rows))
        return
    print(
        f"{'where':24}{'server':20}{'µs/scrape':>11}{'% of a core':>13}{'RSS MB':>9}{'bytes':>9}{'node_exporter':>15}"
    )
    node = {row["where"]: row["us_per_scrape"] for row in rows if row["server"] == "node_exporter, cpu"}
    for row in rows:
        ratio = f"{node[row['where']] / row['us_per_scrape']:.1f} x" if row["where"] in node else ""  # type: ignore[operator]
        print(
            f"{row['where']:24}{row['server']:20}{row['us_per_scrape']:>11}{row['percent_of_a_core_at_1hz']:>13}"
            f"{row['rss_mb']:>9}{row['bytes']:>9}{ratio:>15}"
        )


if __name__ == "__main__":
    main()
