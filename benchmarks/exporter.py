"""CPU time per scrape and memory of `twin exporter`, beside node_exporter's cpu collector, in one run.

    python benchmarks/exporter.py [--scrapes 100] [--rounds 5] [--json] [--before OTHER/src]

Both are scraped over HTTP with keep-alive, in turns, on this host and on generated trees of 128 and 256 threads with
16 Slurm jobs. Between two scrapes the counters of a tree advance by a second. CPU time is the user and system time of
the process, HTTP and the ring included. Our exporter runs twice: with all collectors, and with the cpu collector only,
like node_exporter. With `--before`, the exporter of another checkout runs in turns with them. The last rows are the CPU
time of one sample for the ring, which is what a service needs each second: without HTTP, in a process of its own.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from clustertwin.telemetry.exporter.collectors import COLLECTORS
from misbehaving_node import free_port

JOBS = 16
TICKS = (10**8, 0, 10**7, 10**9, 10**5, 0, 10**5, 0, 0, 0)  # at most, at the start, in the kernel's order
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=%d\n"
#: As long as the kernel's: Linux 6.6 writes about 60 lines.
MEMORY_STAT = "anon %d\nfile 5000000\nshmem 0\nslab_unreclaimable 4096\npgmajfault 7\n" + "".join(
    f"another_count_{i} {i * 1000}\n" for i in range(55)
)
#: CPU time of a sample for the ring, in µs, with a clock that moves by a second for each.
RING = """
import sys, time
from clustertwin.telemetry.exporter.agent import Agent, AgentSettings
now = [1000.0]
agent = Agent(AgentSettings("n", sys.argv[1]), lambda *_: None, lambda: now[0])
best = 1e9
for _ in range(int(sys.argv[3])):
    begun = time.process_time()
    for _ in range(int(sys.argv[2])):
        now[0] += 1.0
        b"".join(agent.ring_since(now[0]))
    best = min(best, (time.process_time() - begun) / int(sys.argv[2]) * 1e6)
print(best)
"""


class Tree:
    """The /proc and /sys of a node with `threads` CPUs, divided among Slurm jobs."""

    def __init__(self, root: Path, threads: int) -> None:
        self.root, self.rng, self.seconds = root, random.Random(threads), 0
        self.ticks = [[self.rng.randrange(most) if most else 0 for most in TICKS] for _ in range(threads)]
        (root / "proc/pressure").mkdir(parents=True)
        (root / "proc/meminfo").write_text(Path("/proc/meminfo").read_text())
        (root / "proc/diskstats").write_text("   8       0 sda 1 2 3 4 5 6 7 8 0 10 11\n")
        (root / "proc/net").mkdir()
        for name in ("vmstat", "net/dev"):
            (root / "proc" / name).write_text(Path(f"/proc/{name}").read_text())
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
            (job / "memory.max").write_text(f"{2 << 30}\n")
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
        stat = f"cpu  {total}\n{''.join(lines)}intr 1 {'0 ' * 500}\nctxt {self.seconds}\nprocesses 1\nprocs_running 9\n"
        (self.root / "proc/stat").write_text(stat)
        for i, job in enumerate(self.jobs):
            user, system = 900_000 * self.seconds + i, 100_000 * self.seconds + i
            used = f"usage_usec {user + system}\nuser_usec {user}\nsystem_usec {system}\nthrottled_usec 0\n"
            (job / "cpu.stat").write_text(used)
            for name in ("memory.current", "memory.peak"):
                (job / name).write_text(f"{10**9 + 4096 * self.seconds}\n")
            (job / "memory.stat").write_text(MEMORY_STAT % (10**9 + 4096 * self.seconds))
            (job / "memory.events").write_text("low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n")
            for name in ("cpu.pressure", "memory.pressure"):
                (job / name).write_text(PRESSURE % (1000 * self.seconds, 10 * self.seconds))


class Server:
    """A server under measurement, with one kept-alive connection to it."""

    def __init__(self, name: str, command: list[str], port: int, source: str = "") -> None:
        self.name = name
        env = {**os.environ, "PYTHONPATH": source} if source else None
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
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


def servers(root: str, before: str) -> list[Server]:
    port = free_port()
    twin = [sys.executable, "-m", "clustertwin.telemetry.exporter", f"--path.rootfs={root}"]
    started = [Server("twin exporter, all", [*twin, f"--web.listen-address=127.0.0.1:{port}"], port)]
    if before:
        port = free_port()
        started.append(Server("before, all", [*twin, f"--web.listen-address=127.0.0.1:{port}"], port, before))
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


def ring_rows(where: str, root: str, scrapes: int, rounds: int, before: str) -> list[dict[str, object]]:
    """The CPU time of a sample for the ring, of this checkout and of the other one."""
    rows = []
    for name, source in (("twin ring", ""), *((("before, ring", before),) if before else ())):
        env = {**os.environ, "PYTHONPATH": source} if source else None
        command = [sys.executable, "-c", RING, root, str(scrapes), str(rounds)]
        us = float(subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout)
        row = {"us_per_scrape": round(us, 1), "percent_of_a_core_at_1hz": round(us / 1e4, 4), "rss_mb": 0.0, "bytes": 0}
        rows.append({"where": where, "server": name} | row)
    return rows


def measure(
    where: str, root: str, scrapes: int, rounds: int, tree: Tree | None, before: str, filled: int
) -> list[dict[str, object]]:
    """The rows of one place, ours first. The ring holds at least `filled` samples when memory is measured."""
    measured = servers(root, before)
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
        for _ in range(max(0, filled - scrapes * rounds)):
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
        ] + ring_rows(where, root, scrapes, rounds, before)
    finally:
        for server in measured:
            server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scrapes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5, help="the best of these is reported")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--filled", type=int, default=600, help="samples in the ring when memory is measured (600)")
    parser.add_argument("--threads", type=int, nargs="*", default=[128, 256], help="of generated trees (128 256)")
    parser.add_argument("--before", default="", help="the sources of another checkout, to compare with")
    options = parser.parse_args()
    rows = measure("this host", "/", options.scrapes, options.rounds, None, options.before, options.filled)
    for threads in options.threads:
        # In memory, like the files of the kernel: the disk must not be measured.
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as directory:
            tree = Tree(Path(directory), threads)
            where = f"{threads} threads, {JOBS} jobs"
            rows += measure(where, directory, options.scrapes, options.rounds, tree, options.before, options.filled)
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
