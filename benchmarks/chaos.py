"""Faults against a running service, one after the other: real processes -> lost, invented, recovered after.

    python benchmarks/chaos.py [--only WORD …] [--fault-s 8] [--warm-s 130] [--control-s 240] [--json]

Two real exporters read kernel files that this program writes (four idle threads each). A proxy that can misbehave
stands before the second, and a real `twin serve` watches both. Meanwhile a client adds silences; each that the service
has acknowledged must be in the database after the fault. Every event counts as invented, because both nodes are idle
and sound.

No event could open without scores, so the scores are counted. The first 130 s are for the first scores. Faults that
end the service come last, because a new process needs 100 s for its first score. Scores open events here
(`events.opened_by`), which is stricter than the default. At the end the threads of the first node wait for I/O: the
control counts the seconds until an event says so. Without that event, "0 invented" would say nothing.

The columns are: acknowledged while the fault lasted, lost, invented, scores of threads of the first and of the second
node from the begin of the fault to the recovery, the largest age of the other node's data during a fault of one node,
the time from the end of the fault until the snapshot is new, both nodes have new data and no problem is named, what the
recovery waited for last, and the last problem that the API named.
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
from collections import Counter
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
        self.scores = Counter[str]()  # scores of threads so far, by node; of all processes of the service
        self._scored_s = 0
        self._stopped = threading.Event()
        urls = [f"http://127.0.0.1:{self.ports['a']}", f"http://127.0.0.1:{self.proxy.port}"]
        (root / "twin.toml").write_text(
            f'[service]\nport = {self.port}\nhome = "{self.home}"\n[source]\nkind = "exporters"\n'
            f'urls = {json.dumps(urls)}\n[scoring]\nstride_s = 2\n[events]\nopened_by = "scores"\n'
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

    def look(self) -> dict[str, Any]:
        """The snapshot, if there is one. A scoring that is new is counted."""
        snapshot: dict[str, Any] = self.get("/api/v1/snapshot") or {}
        if (snapshot.get("scored_s") or 0) not in (0, self._scored_s):
            self._scored_s = snapshot["scored_s"]
            for node in snapshot["nodes"]:
                self.scores[node["node"]] += node["threads"] - node["unknown"]
        return snapshot

    def what_is_wrong(self) -> str:
        """Why the service is not well; empty if it is."""
        snapshot, newest = self.look(), self.newest_s()
        if not snapshot:
            return "the API does not answer"
        if snapshot["problems"]:
            return str(snapshot["problems"][0])
        if snapshot["phase"] not in ("watching", "warming-up"):
            return f"the phase is {snapshot['phase']}"
        late = [name for name in self.kernels if newest.get(name, 0.0) < time.time() - 6]
        return f"no new data of {' and '.join(late)}" if late else ""

    def wait_well(self, limit_s: float) -> tuple[float | None, str]:
        """Seconds until all is well, None if it takes longer; and what was wrong last."""
        begun_s, held_by = time.monotonic(), ""
        while time.monotonic() - begun_s < limit_s:
            if self.service is not None and self.service.poll() is not None:
                self.start_service()  # as systemd does
            wrong = self.what_is_wrong()
            if not wrong:
                return time.monotonic() - begun_s, held_by
            held_by = wrong
            time.sleep(0.25)
        return None, held_by

    def control_s(self, limit_s: float) -> float | None:
        """Seconds until an event says that the first node waits for I/O; None if it takes longer."""
        events, begun_s = self.events(), time.monotonic()
        self.kernels["a"].iowait_ratio = 0.9
        while time.monotonic() - begun_s < limit_s:
            self.look()
            if self.events() > events:
                return time.monotonic() - begun_s
            time.sleep(0.5)
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
    "the service is stopped": (service_stopped, False),
    "no free file descriptor": (limited(resource.RLIMIT_NOFILE, _descriptors), False),
    "no file can grow (disk full)": (limited(resource.RLIMIT_FSIZE, lambda stage: 4096), False),
    "another process locks the database": (database_locked, False),
    "champion.json is not UTF-8": (champion(b"\xff\xfe\x00"), False),
    "champion.json names no model": (champion(NAMED), False),
    "400 silent sockets": (silent_sockets, False),
    "16 clients send verdicts without pause": (flood, False),
    # These end the service, now or later, so its scores begin anew.
    "64 MB of memory are left": (limited(resource.RLIMIT_AS, _address_space), False),
    "kill -9 of the service": (service_ended(signal.SIGKILL), False),
    "SIGTERM of the service": (service_ended(signal.SIGTERM), False),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    fault: str
    acknowledged: int  # while the fault lasted
    lost: int
    invented: int
    scores: tuple[int, int]  # of threads of the first and of the second node
    rest_s: float | None  # the largest age of the other node's data
    named: list[str]
    recovered_s: float | None
    held_by: str  # what was wrong last


def try_fault(stage: Stage, name: str, fault_s: float) -> Outcome:
    fault, of_one_node = FAULTS[name]
    events, acknowledged, scores = stage.events(), len(stage.acknowledged), stage.scores.copy()
    problems: dict[str, None] = {}
    oldest_s = 0.0
    with fault(stage):
        until_s = time.monotonic() + fault_s
        while time.monotonic() < until_s:
            problems |= dict.fromkeys(stage.look().get("problems", ()))
            oldest_s = max(oldest_s, time.time() - stage.newest_s().get("a", 0.0)) if of_one_node else 0.0
            time.sleep(0.25)
    recovered_s, held_by = stage.wait_well(RECOVERY_S)
    if recovered_s is None:
        problems |= dict.fromkeys((stage.get("/api/v1/snapshot") or {}).get("problems", ["no answer"]))
    return Outcome(
        name,
        len(stage.acknowledged) - acknowledged,
        stage.lost(),
        stage.events() - events,
        (stage.scores["a"] - scores["a"], stage.scores["b"] - scores["b"]),
        oldest_s if of_one_node else None,
        list(problems),
        recovered_s,
        held_by,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="only faults whose name contains one of these words")
    parser.add_argument("--fault-s", type=float, default=8.0)
    parser.add_argument("--warm-s", type=float, default=130.0)
    parser.add_argument("--control-s", type=float, default=240.0, help="for the control at the end; 0: no control")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = [name for name in FAULTS if not options.only or any(word in name for word in options.only)]
    outcomes: list[Outcome] = []
    control_s = None
    with tempfile.TemporaryDirectory(prefix="chaos-") as directory, Stage(Path(directory)) as stage:
        warm_s = time.monotonic() + options.warm_s
        while time.monotonic() < warm_s:
            stage.look()
            time.sleep(0.5)
        if (well := stage.wait_well(RECOVERY_S))[0] is None:
            raise SystemExit(f"the service is not well before any fault: {well[1]}")
        before = stage.events()
        for name in names:
            outcomes.append(try_fault(stage, name, options.fault_s))
            if not options.json:
                print(row(outcomes[-1]), flush=True)
            if outcomes[-1].recovered_s is None:
                break  # what follows would be measured on a service that is not well
        if options.control_s:
            begun_s = time.monotonic()
            while time.monotonic() - begun_s < options.warm_s:  # a new process has no score yet
                stage.look()
                time.sleep(0.5)
            late = stage.events() - before - sum(outcome.invented for outcome in outcomes)
            control_s = stage.control_s(options.control_s)
        scored = dict(stage.scores)
    if options.json:
        print(json.dumps([asdict(outcome) for outcome in outcomes]))
    failed = [o for o in outcomes if o.lost or o.invented or o.recovered_s is None or (o.rest_s or 0) > REST_S]
    print(f"{len(outcomes)} of {len(names)} faults, {len(failed)} failed, scores {scored}", file=sys.stderr)
    if options.control_s:
        found = "no event" if control_s is None else f"an event after {control_s:.0f} s"
        print(f"{late} events invented after the last fault; control: {found}", file=sys.stderr)
    sys.exit(bool(failed) or bool(options.control_s and (late or control_s is None)))


def row(o: Outcome) -> str:
    recovered = "not recovered" if o.recovered_s is None else f"{o.recovered_s:.1f} s"
    named = o.named[-1] if o.named else ""  # the last is the most specific
    named = f"{named[:70]}…" if len(named) > 70 else named
    rest = "" if o.rest_s is None else f"{o.rest_s:.1f} s"
    scores, held_by = " ".join(map(str, o.scores)), o.held_by[:60]
    return (
        f"| {o.fault} | {o.acknowledged} | {o.lost} | {o.invented} | {scores} | {rest} | {recovered} | {held_by} | "
        f"{named} |"
    )


if __name__ == "__main__":
    main()
