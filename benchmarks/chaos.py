"""Faults against a running service, one after the other: real processes -> lost, invented, recovered after.

    python benchmarks/chaos.py [--only WORD …] [--fault-s 8] [--warm-s 130] [--json]

Two real exporters read kernel files that this program writes (four idle threads each). A proxy that can misbehave
stands before the second, and a real `twin serve` watches both. Meanwhile a client adds silences; each that the service
has acknowledged must be in the database after the fault. Every event counts as invented, because both nodes are idle
and sound. The first 130 s are for scores: before them no event could open.

The columns are: acknowledged while the fault lasted, lost, invented, the largest age of the other node's data during a
fault of one node, the time from the end of the fault until the snapshot is new, both nodes have new data and no problem
is named, and the last problem that the API named.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from misbehaving_node import Kernel, Proxy, free_port, many_cpus, shift_times, with_body

#: The other node's data may be this old: two seconds, and one more because this machine is busy.
REST_S = 3.0
RECOVERY_S = 150.0  # after this time a fault counts as one from which the service does not recover
READY_S = 90.0


class Stage:
    """All processes, and what a client of the service sees."""

    def __init__(self, root: Path) -> None:
        self.root, self.home, self.port = root, root / "home", free_port()
        self.kernels = {name: Kernel(root / name) for name in ("a", "b")}
        self.ports = {name: free_port() for name in self.kernels}
        self.proxy = Proxy(self.ports["b"])
        self.exporters: dict[str, subprocess.Popen[bytes]] = {}
        self.service: subprocess.Popen[bytes] | None = None
        self.acknowledged: list[int] = []
        self._stopped = threading.Event()
        urls = [f"http://127.0.0.1:{self.ports['a']}", f"http://127.0.0.1:{self.proxy.port}"]
        (root / "twin.toml").write_text(
            f'[service]\nport = {self.port}\nhome = "{self.home}"\n[source]\nkind = "exporters"\n'
            f"urls = {json.dumps(urls)}\n[scoring]\nstride_s = 2\n"
        )

    def __enter__(self) -> Stage:
        for name, kernel in self.kernels.items():
            kernel.start()
            self.start_exporter(name)
        self.proxy.start()
        self.start_service()
        threading.Thread(target=self._write, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        for kernel in self.kernels.values():
            kernel.stop()
        for process in (self.service, *self.exporters.values()):
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()

    def start_exporter(self, name: str) -> None:
        options = [f"--web.listen-address=127.0.0.1:{self.ports[name]}", f"--path.rootfs={self.root / name}"]
        command = [sys.executable, "-m", "clustertwin.telemetry.exporter", *options, f"--node={name}"]
        with (self.root / f"{name}.log").open("ab") as log:
            self.exporters[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def start_service(self) -> None:
        command = [sys.executable, "-m", "clustertwin", "serve", "--config", str(self.root / "twin.toml")]
        with (self.root / "service.log").open("ab") as log:
            self.service = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + READY_S
        while self.get("/healthz", plain=True) is None:
            if time.monotonic() > deadline or self.service.poll() is not None:
                raise SystemExit(f"the service does not start:\n{(self.root / 'service.log').read_text()[-2000:]}")
            time.sleep(0.2)

    @property
    def pid(self) -> int:
        assert self.service is not None
        return self.service.pid

    def get(self, path: str, plain: bool = False) -> Any:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.read() if plain else json.load(answer)
        except (OSError, ValueError):
            return None

    def post(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return None

    def _write(self) -> None:
        while not self._stopped.wait(0.3):
            answer = self.post("/api/v1/silences", {"until_s": time.time() + 5, "node": "nobody"})
            if answer is not None:
                self.acknowledged.append(int(answer["id"]))

    def lost(self) -> int:
        """Acknowledged silences that are not in the database."""
        with closing(sqlite3.connect(self.home / "state.sqlite", timeout=30)) as database:
            stored = {row[0] for row in database.execute("SELECT id FROM silences")}
        return len(set(self.acknowledged) - stored)

    def events(self) -> int:
        with closing(sqlite3.connect(self.home / "state.sqlite", timeout=30)) as database:
            return int(database.execute("SELECT COUNT(*) FROM events").fetchone()[0])

    def newest_s(self) -> dict[str, float]:
        return {row["node"]: row["heard_s"] or 0.0 for row in self.get("/api/v1/nodes") or []}

    def is_well(self) -> bool:
        snapshot = self.get("/api/v1/snapshot")
        newest = self.newest_s()
        fresh = all(newest.get(name, 0.0) >= time.time() - 6 for name in self.kernels)
        return bool(snapshot) and snapshot["phase"] in ("watching", "warming-up") and fresh and not snapshot["problems"]

    def wait_well(self, limit_s: float) -> float | None:
        """Seconds until all is well; None if it takes longer."""
        begun_s = time.monotonic()
        while time.monotonic() - begun_s < limit_s:
            if self.service is not None and self.service.poll() is not None:
                self.start_service()  # as systemd does
            if self.is_well():
                return time.monotonic() - begun_s
            time.sleep(0.25)
        return None


# Each fault is a context manager: it begins with the block and is over after it.
Fault = Callable[[Stage], Any]


def through_proxy(mode: Callable[[bytes], bytes | None] | str, ahead_s: float = 0.0) -> Fault:
    @contextmanager
    def fault(stage: Stage) -> Iterator[None]:
        stage.proxy.ahead_s = ahead_s
        stage.proxy.set(mode)
        yield
        stage.proxy.ahead_s = 0.0
        stage.proxy.set("pass")

    return fault


@contextmanager
def exporter_stopped(stage: Stage) -> Iterator[None]:
    stage.exporters["b"].send_signal(signal.SIGSTOP)
    yield
    stage.exporters["b"].send_signal(signal.SIGCONT)


@contextmanager
def exporter_killed(stage: Stage) -> Iterator[None]:
    stage.exporters["b"].kill()
    stage.exporters["b"].wait()
    yield
    stage.start_exporter("b")


@contextmanager
def counters_restart(stage: Stage) -> Iterator[None]:
    stage.kernels["b"].offset_s = -time.monotonic() + stage.kernels["b"]._begun_s
    yield


@contextmanager
def cpu_unplugged(stage: Stage) -> Iterator[None]:
    stage.kernels["b"].cpus = 3
    yield
    stage.kernels["b"].cpus = 4


@contextmanager
def stat_unreadable(stage: Stage) -> Iterator[None]:
    stage.kernels["b"].is_broken = True
    yield
    stage.kernels["b"].is_broken = False


def service_ended(number: signal.Signals) -> Fault:
    @contextmanager
    def fault(stage: Stage) -> Iterator[None]:
        assert stage.service is not None
        stage.service.send_signal(number)
        stage.service.wait()
        yield
        stage.start_service()

    return fault


@contextmanager
def service_stopped(stage: Stage) -> Iterator[None]:
    os.kill(stage.pid, signal.SIGSTOP)
    yield
    os.kill(stage.pid, signal.SIGCONT)


def limited(name: int, limit: Callable[[Stage], int]) -> Fault:
    """A limit of the service's process, as long as the fault lasts."""

    @contextmanager
    def fault(stage: Stage) -> Iterator[None]:
        before = resource.prlimit(stage.pid, name)
        resource.prlimit(stage.pid, name, (limit(stage), before[1]))
        yield
        resource.prlimit(stage.pid, name, before)

    return fault


def _descriptors(stage: Stage) -> int:
    return len(os.listdir(f"/proc/{stage.pid}/fd")) + 2


def _address_space(stage: Stage) -> int:
    pages = int(Path(f"/proc/{stage.pid}/statm").read_text().split()[0])
    return pages * resource.getpagesize() + (64 << 20)


@contextmanager
def database_locked(stage: Stage) -> Iterator[None]:
    with closing(sqlite3.connect(stage.home / "state.sqlite", isolation_level=None, timeout=30)) as database:
        database.execute("BEGIN IMMEDIATE")
        yield
        database.execute("ROLLBACK")


def champion(content: bytes) -> Fault:
    @contextmanager
    def fault(stage: Stage) -> Iterator[None]:
        draft = stage.home / ".champion.json.new"
        draft.write_bytes(content)
        draft.rename(stage.home / "champion.json")
        yield
        (stage.home / "champion.json").unlink()

    return fault


@contextmanager
def silent_sockets(stage: Stage) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(400):
            with suppress(OSError):
                stack.enter_context(socket.create_connection(("127.0.0.1", stage.port), timeout=5))
        yield


@contextmanager
def flood(stage: Stage) -> Iterator[None]:
    ended = threading.Event()

    def post() -> None:
        while not ended.is_set():
            stage.post("/api/v1/verdicts", {"ids": ["none"] * 100, "verdict": "dismissed"})

    threads = [threading.Thread(target=post, daemon=True) for _ in range(16)]
    for thread in threads:
        thread.start()
    yield
    ended.set()


DIGITS = b"cpu0 " + b"9" * 400
NAMED = b'{"version": "none", "sha256": "ab", "fence": 1, "since_s": 5.0, "why": "x", "before": [], "base": ""}'
#: name -> the fault, and whether it concerns node b alone
FAULTS: dict[str, tuple[Fault, bool]] = {
    "exporter refuses connections": (through_proxy("refuse"), True),
    "exporter does not answer": (through_proxy("silent"), True),
    "exporter answers a byte at a time": (through_proxy("slow"), True),
    "exporter stops within its answer": (through_proxy("half"), True),
    "answer without end": (through_proxy("endless"), True),
    "negative chunk size": (
        through_proxy(lambda answer: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n"),
        True,
    ),
    "status 500": (through_proxy(lambda answer: b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"), True),
    "answer of random bytes": (through_proxy(with_body(lambda body: os.urandom(4000))), True),
    "counter of 400 digits": (
        through_proxy(with_body(lambda body: body.replace(b"cpu0 ", b"cpu0 " + b"9" * 400))),
        True,
    ),
    "NaN instead of counters": (through_proxy(with_body(lambda body: body.replace(b"cpu0 ", b"cpu0 NaN "))), True),
    "10,000 more threads": (through_proxy(with_body(many_cpus)), True),
    "clock of a node an hour ahead": (through_proxy(with_body(shift_times(3600.0)), 3600.0), True),
    "clock of a node an hour back": (through_proxy(with_body(shift_times(-3600.0)), -3600.0), True),
    "every block twice": (through_proxy(with_body(lambda body: body + body)), True),
    "exporter is stopped": (exporter_stopped, True),
    "exporter is killed and starts again": (exporter_killed, True),
    "counters begin again": (counters_restart, True),
    "a CPU is unplugged and returns": (cpu_unplugged, True),
    "/proc/stat is empty": (stat_unreadable, True),
    "kill -9 of the service": (service_ended(signal.SIGKILL), False),
    "SIGTERM of the service": (service_ended(signal.SIGTERM), False),
    "the service is stopped": (service_stopped, False),
    "no free file descriptor": (limited(resource.RLIMIT_NOFILE, _descriptors), False),
    "no file can grow (disk full)": (limited(resource.RLIMIT_FSIZE, lambda stage: 4096), False),
    "64 MB of memory are left": (limited(resource.RLIMIT_AS, _address_space), False),
    "another process locks the database": (database_locked, False),
    "champion.json is not UTF-8": (champion(b"\xff\xfe\x00"), False),
    "champion.json names no model": (champion(NAMED), False),
    "400 silent sockets": (silent_sockets, False),
    "16 clients send verdicts without pause": (flood, False),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    fault: str
    acknowledged: int  # while the fault lasted
    lost: int
    invented: int
    rest_s: float | None  # the largest age of the other node's data
    named: list[str]
    recovered_s: float | None


def try_fault(stage: Stage, name: str, fault_s: float) -> Outcome:
    fault, of_one_node = FAULTS[name]
    events, acknowledged = stage.events(), len(stage.acknowledged)
    problems: dict[str, None] = {}
    oldest_s = 0.0
    with fault(stage):
        until_s = time.monotonic() + fault_s
        while time.monotonic() < until_s:
            snapshot = stage.get("/api/v1/snapshot") or {}
            problems |= dict.fromkeys(snapshot.get("problems", ()))
            oldest_s = max(oldest_s, time.time() - stage.newest_s().get("a", 0.0)) if of_one_node else 0.0
            time.sleep(0.25)
    recovered_s = stage.wait_well(RECOVERY_S)
    if recovered_s is None:
        problems |= dict.fromkeys((stage.get("/api/v1/snapshot") or {}).get("problems", ["no answer"]))
    return Outcome(
        name,
        len(stage.acknowledged) - acknowledged,
        stage.lost(),
        stage.events() - events,
        oldest_s if of_one_node else None,
        list(problems),
        recovered_s,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="only faults whose name contains one of these words")
    parser.add_argument("--fault-s", type=float, default=8.0)
    parser.add_argument("--warm-s", type=float, default=130.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = [name for name in FAULTS if not options.only or any(word in name for word in options.only)]
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="chaos-") as directory, Stage(Path(directory)) as stage:
        time.sleep(options.warm_s)
        if stage.wait_well(RECOVERY_S) is None:
            raise SystemExit(f"the service is not well before any fault: {stage.get('/api/v1/snapshot')}")
        for name in names:
            outcomes.append(try_fault(stage, name, options.fault_s))
            if not options.json:
                print(row(outcomes[-1]), flush=True)
            if outcomes[-1].recovered_s is None:
                break  # what follows would be measured on a service that is not well
        scored = (stage.get("/api/v1/snapshot") or {}).get("scored_total", 0)
    if options.json:
        print(json.dumps([asdict(outcome) for outcome in outcomes]))
    failed = [o for o in outcomes if o.lost or o.invented or o.recovered_s is None or (o.rest_s or 0) > REST_S]
    print(f"{len(outcomes)} of {len(names)} faults, {len(failed)} failed, {scored} scores", file=sys.stderr)
    sys.exit(bool(failed))


def row(o: Outcome) -> str:
    recovered = "not recovered" if o.recovered_s is None else f"{o.recovered_s:.1f} s"
    named = o.named[-1] if o.named else ""  # the last is the most specific
    named = f"{named[:70]}…" if len(named) > 70 else named
    rest = "" if o.rest_s is None else f"{o.rest_s:.1f} s"
    return f"| {o.fault} | {o.acknowledged} | {o.lost} | {o.invented} | {rest} | {recovered} | {named} |"


if __name__ == "__main__":
    main()
