"""A million threads as shards: services measured alone, a model of many together, and a check of its prediction.

    python benchmarks/scale.py [--total 1000000] [--shard 25600] [--alone 3] [--together 4 8] [--kill] [--stride 10]
                               [--seconds 30] [--start-s 20] [--json]

A shard is a whole service with its own exporters (`service.py`): it reads every thread once a second over HTTP, scores
all of them with all views, stores events and serves its pages. Nothing is left out, so a shard has the density of the
real thing. `--alone` measures that many shards one after the other, each in a fresh process with other simulated jobs.

The model: N shards need N times the cores and the memory of one, and each waits as long as it does alone. What joins
them is measured at the full size: a `MemberWatch` reads the summaries of as many services as the total has shards over
HTTP; only their content is made up.

`--together 4 8` runs so many shards at the same time with a `MemberWatch` that joins them, and compares with the model.
They share the cores of this machine, so that waits are comparable only while it has cores to spare. With `--kill` the
first of the shards is killed in the last of these runs, after the measurement has begun.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from clustertwin.service.live.members.member_board import MemberBoard
from clustertwin.service.live.members.member_settings import MemberSettings
from clustertwin.service.live.members.member_summary import MemberNode, MemberSummary
from clustertwin.service.live.members.member_watch import EVERY_S, MemberWatch, watch
from misbehaving_node import free_port

SERVICE = Path(__file__).parent / "service.py"
NODE_THREADS = 128
THREAD_BYTES = 71  # of a second on the network


@dataclass(frozen=True, slots=True)
class Shards:
    """Several shards of one size, measured or predicted."""

    shards: int
    threads: int
    cores: float  # of all services, without exporters
    memory_mb: float
    p99_s: float  # the largest

    def row(self, what: str) -> str:
        return (
            f"| {what} | {self.shards} | {self.threads:,} | {self.cores:.2f} | {self.memory_mb:,.0f} MB "
            f"| {self.p99_s:.2f} s |"
        )


@dataclass(frozen=True, slots=True)
class Joining:
    """What a `MemberWatch` needs."""

    load: float  # of a core
    bytes_a_second: float
    nodes: int
    threads: int
    oldest_s: float  # the largest age of the newest scores that the board showed; NaN if they are made up


@dataclass(frozen=True, slots=True)
class Kill:
    named_after_s: float  # until the board said that the cluster is not watched
    others_p99_s: float  # the largest, of the services that went on
    others_threads: int  # that the board went on showing


def predict(alone: list[dict[str, Any]], shards: int) -> Shards:
    """The model."""
    return Shards(
        shards,
        shards * alone[0]["threads"],
        shards * float(np.mean([row["load"] for row in alone])),
        shards * float(np.mean([row["rss_mb"] for row in alone])),
        max(row["p99_s"] for row in alone),
    )


def together(rows: list[dict[str, Any]]) -> Shards:
    """The sum of shards that ran at the same time."""
    return Shards(
        len(rows),
        sum(row["threads"] for row in rows),
        sum(row["load"] for row in rows),
        sum(row["rss_mb"] for row in rows),
        max(row["p99_s"] for row in rows),
    )


def command(seed: int, options: argparse.Namespace, *more: str) -> list[str]:
    words = [sys.executable, str(SERVICE), "--threads", str(options.shard), "--stride", str(options.stride)]
    return [*words, "--seconds", str(options.seconds), "--seed", str(seed), "--json", "--anywhere", *more]


def measure_alone(seed: int, options: argparse.Namespace) -> dict[str, Any]:
    done = subprocess.run(command(seed, options, "--port", str(free_port())), stdout=subprocess.PIPE, check=True)
    row: dict[str, Any] = json.loads(done.stdout)[0]
    return row


def measure_together(shards: int, options: argparse.Namespace, kill: bool) -> tuple[list[dict[str, Any]], Joining, Any]:
    ports = [free_port() for _ in range(shards)]
    begin_s = int(time.time() + options.start_s * (1 + shards / 2))
    processes = [
        subprocess.Popen(
            command(3000 + i, options, "--port", str(port), "--begin-at", str(begin_s)),
            stdout=subprocess.PIPE,
            start_new_session=True,  # so that a shard and its exporters can be killed together
        )
        for i, port in enumerate(ports)
    ]
    try:
        with joined([f"http://127.0.0.1:{port}" for port in ports]) as joining:
            until(lambda: joining.board.totals(time.monotonic()).oldest_s < 60, processes)
            joining.begin()
            killed = None
            if kill:
                time.sleep(options.stride)
                killed = processes.pop(0)
                os.killpg(killed.pid, signal.SIGKILL)
                named_s = time_until(lambda: joining.board.totals(time.monotonic()).watched == shards - 1)
                others = joining.board.totals(time.monotonic()).threads
            time.sleep(options.seconds)
            cost = joining.end()
            rows = [json.loads(process.communicate()[0])[0] for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    after = Kill(named_s, max(row["p99_s"] for row in rows), others) if killed else None
    return rows, cost, after


class Joined:
    """A `MemberWatch` in a thread, and what it needs between `begin` and `end`."""

    def __init__(self, urls: list[str]) -> None:
        self.board, self.bytes, self.oldest_s = MemberBoard(()), 0, 0.0
        self.cpu_s = 0.0
        self._stop = threading.Event()
        self._watch = MemberWatch([MemberSettings(f"s{i}", url) for i, url in enumerate(urls)], self._publish)
        self._heard = self._watch._heard
        self._watch._heard = self._counted  # type: ignore[method-assign]
        self._thread = threading.Thread(target=watch, args=(self._watch, self._stop), daemon=True)
        self._thread.start()

    def _counted(self, member: Any, answer: Any) -> Any:
        self.bytes += len(answer) if isinstance(answer, bytes) else 0
        return self._heard(member, answer)

    def _publish(self, board: MemberBoard) -> None:
        self.board, self.cpu_s = board, time.thread_time()
        age_s = board.totals(time.monotonic()).oldest_s
        self.oldest_s = max(self.oldest_s, 0.0 if np.isnan(age_s) else age_s)

    def begin(self) -> None:
        self._begun = time.monotonic(), self.cpu_s, self.bytes
        self.oldest_s = 0.0

    def end(self) -> Joining:
        begun_s, cpu_s, count = self._begun
        seconds, totals = time.monotonic() - begun_s, self.board.totals(time.monotonic())
        load, rate = (self.cpu_s - cpu_s) / seconds, (self.bytes - count) / seconds
        return Joining(load, rate, totals.nodes, totals.threads, self.oldest_s)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def joined(urls: list[str]) -> Iterator[Joined]:
    board = Joined(urls)
    try:
        yield board
    finally:
        board.close()


def measure_joining(shards: int, shard_threads: int, seconds: float) -> Joining:
    """Join as many services as the total has shards. One small server answers for all of them."""
    rng = np.random.default_rng(0)
    bodies = []
    for shard in range(shards):
        scores = np.sort(rng.exponential(size=shard_threads // NODE_THREADS))[::-1].tolist()
        nodes = tuple(
            MemberNode(node=f"s{shard:02d}n{i:05d}", phase="watching", threads=NODE_THREADS, score=score, alarming=0,
                       unknown=0)
            for i, score in enumerate(scores)
        )  # fmt: skip
        summary = MemberSummary(
            now_s=1.8e9, phase="watching", lag_s=0.5, stride_s=10, scoring_s=0.5, scored_s=1.8e9 - 1, threshold=3.0,
            model="made-up", jobs=len(nodes), open_events=0, problems=(), events=(), nodes=nodes,
        )  # fmt: skip
        bodies.append(summary.model_dump_json().encode())

    class Server(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = bodies[int(self.path.split("/")[1])]
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with joined([f"http://127.0.0.1:{server.server_port}/{i}" for i in range(shards)]) as joining:
        until(lambda: joining.board.totals(time.monotonic()).watched == shards, [])
        joining.begin()
        time.sleep(seconds)
        cost = joining.end()
    server.shutdown()
    return Joining(cost.load, cost.bytes_a_second, cost.nodes, cost.threads, nan)


def until(fine: Callable[[], bool], processes: list[subprocess.Popen[bytes]], seconds: float = 900.0) -> None:
    give_up_s = time.monotonic() + seconds
    while not fine():
        if time.monotonic() > give_up_s:
            sys.exit(f"not within {seconds:.0f} s")
        if any(process.poll() is not None for process in processes):
            sys.exit("a shard has ended")
        time.sleep(0.1)


def time_until(fine: Callable[[], bool]) -> float:
    begun_s = time.monotonic()
    until(fine, [], 120.0)
    return time.monotonic() - begun_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--total", type=int, default=1_000_000)
    parser.add_argument("--shard", type=int, default=25_600)
    parser.add_argument("--alone", type=int, default=3)
    parser.add_argument("--together", type=int, nargs="*", default=[4, 8])
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--stride", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--start-s", type=float, default=20.0, help="that a shard needs to start, alone")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    shards = -(-options.total // options.shard)
    print_ = (lambda *_: None) if options.json else lambda text: print(text, flush=True)

    alone = []
    print_("| shard alone | threads | load of a core | median wait | p99 wait | scorings | memory | stride |")
    for seed in range(options.alone):
        alone.append(measure_alone(seed, options))
        print_(_row(f"{seed + 1}", alone[-1]))
    joining = measure_joining(shards, options.shard, 20.0)
    print_(f"joining {shards} made-up shards, {joining.nodes:,} nodes: {_joining(joining)}")
    checks = []
    print_("| | shards | threads | cores | memory | largest p99 wait |")
    for count in options.together:
        kill = options.kill and count == options.together[-1]
        rows, cost, killed = measure_together(count, options, kill)
        predicted, measured = predict(alone, len(rows)), together(rows)
        checks.append({
            "predicted": asdict(predicted), "measured": asdict(measured), "joining": asdict(cost), "rows": rows,
            "kill": asdict(killed) if killed else None, "load_average": os.getloadavg(),
        })  # fmt: skip
        print_(predicted.row("predicted") + "\n" + measured.row("measured together"))
        for row in rows:
            print_(_row("", row))
        print_(f"joining them: {_joining(cost)}; load average of the machine {os.getloadavg()[0]:.1f}")
        if killed:
            print_(
                f"one of {count} killed: named after {killed.named_after_s:.1f} s; the others went on, "
                f"{killed.others_threads:,} threads, p99 wait {killed.others_p99_s:.2f} s"
            )
    million = predict(alone, shards)
    result = {"alone": alone, "joining": asdict(joining), "checks": checks, "predicted": asdict(million)}
    if options.json:
        print(json.dumps(result))
        return
    print(million.row("extrapolated") + f" and {joining.load:.1%} of a core to join them, "
          f"{options.total * THREAD_BYTES / 1e6:.0f} MB/s from exporters")  # fmt: skip


def _joining(cost: Joining) -> str:
    text = f"{cost.load:.2%} of a core, {cost.bytes_a_second / 1e3:,.0f} KB/s, every {EVERY_S:g} s"
    return text if np.isnan(cost.oldest_s) else f"{text}, oldest newest scores {cost.oldest_s:.1f} s"


def _row(what: str, row: dict[str, Any]) -> str:
    return (
        f"| {what} | {row['threads']:,} | {row['load']:.1%} | {row['p50_s']:.2f} s | {row['p99_s']:.2f} s "
        f"| {row['scorings']} | {row['rss_mb']:,.0f} MB | {row['stride_now_s']} s |"
    )


if __name__ == "__main__":
    main()
