"""Hours of a service in compressed time: replay, nights, verdicts, page loads -> slopes of memory, files and disk.

    python benchmarks/soak.py [--hours 24] [--speed 120] [--days-before 1] [--no-nights] [--json]

A cluster of two nodes with eight threads each is simulated; three jobs in ten do bad I/O. A real `twin up --replay`
replays the hours `--speed` times faster than they were. Meanwhile a client loads every page and the API and gives a
verdict to each event, first confirmed, then dismissed, in turn. After each simulated day, `twin learn run` learns from
it in the same home, so that a new champion is taken over while the replay goes on. `--days-before` simulated days are
already recorded when the replay starts: their nights run beside it too.

Slopes are least squares over the second half of the replay, by simulated hour and by real hour. The first half is left
out because caches fill, code is compiled and the history of an hour is not full yet.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from clustertwin.telemetry.campaign.simulated_rounds import write_recording
from clustertwin.telemetry.recording import Recording
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.signature import read_signatures
from clustertwin.telemetry.simulation.simulated_cluster import simulate
from misbehaving_node import free_port

START_S = 1_767_225_600  # a midnight in UTC
DAY_S = 86_400
PAGES = ("/", "/events", "/jobs", "/models", "/embedding", "/quiet", "/audit", "/metrics", "/api/v1/nodes", "/healthz")
READY_S = 120.0
NIGHT = ("--models", "linear", "--budget-s", "30", "--workers", "1", "--mlflow", "none")


@dataclass(frozen=True, slots=True)
class Sample:
    real_s: float
    hour: float  # of the replay
    rss_mb: float
    descriptors: int
    threads: int
    disk_mb: float  # of the home without the recording that is replayed


@dataclass(slots=True)
class Visitor:
    """A client of the service, and what it saw."""

    port: int
    loads: int = 0
    failed_loads: int = 0
    verdicts: int = 0
    judged: set[str] = field(default_factory=set)

    def get(self, path: str) -> bytes | None:
        self.loads += 1
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
                content: bytes = answer.read()
                return content
        except (OSError, ValueError):
            self.failed_loads += 1
            return None

    def read(self, path: str) -> Any:
        content = self.get(path)
        return None if content is None else json.loads(content)

    def judge(self) -> None:
        """A verdict for each event that has none."""
        for event in (self.read("/api/v1/events?limit=1000") or {}).get("events", []):
            if event["id"] in self.judged:
                continue
            verdict = ("confirmed", "dismissed")[len(self.judged) % 2]
            self.judged.add(event["id"])
            self.verdicts += self._post(f"/api/v1/events/{event['id']}/verdict", {"verdict": verdict})
            self.get(f"/events/{event['id']}")

    def _post(self, path: str, body: dict[str, Any]) -> bool:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


class Nights:
    """One night at a time, in a process of its own; nothing waits for it."""

    def __init__(self, home: Path, recordings: list[Path]) -> None:
        self._home, self._recordings = home, recordings
        self._running: subprocess.Popen[bytes] | None = None
        self._due: list[str] = []
        self.codes: list[int] = []

    def add(self, day: str) -> None:
        self._due.append(day)

    def step(self) -> None:
        if self._running is not None and (code := self._running.poll()) is not None:
            self.codes.append(code)
            self._running = None
        if self._running is None and self._due:
            recordings = [word for path in self._recordings for word in ("--recording", str(path))]
            command = ["learn", "run", "--home", str(self._home), "--day", self._due.pop(0), *recordings, *NIGHT]
            with (self._home / "soak-nights.log").open("ab") as log:
                self._running = subprocess.Popen(
                    ["nice", "-n", "10", sys.executable, "-m", "clustertwin", *command],
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "TZ": "UTC"},
                )

    @property
    def busy(self) -> bool:
        return self._running is not None or bool(self._due)

    def close(self) -> None:
        if self._running is not None:
            self._running.kill()
            self._running.wait()


def record(directory: Path, hours: float, start_s: int, seed: int) -> Path:
    settings = ClusterSettings(
        nodes=2,
        threads=8,
        hours=hours,
        job_types=("np", "good-io", "mpi-4"),
        anomalies=("bad-io",),
        anomaly_ratio=0.3,
        idle_ratio=0.0,
        job_s=(900.0, 1800.0),
        start_s=start_s,
    )
    write_recording(directory, simulate(settings, read_signatures(), seed), directory.name, "test")
    return directory


def sample(process: subprocess.Popen[bytes], begun_s: float, hour: float, home: Path) -> Sample:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
    disk = sum(path.stat().st_size for path in home.rglob("*") if path.is_file() and not path.is_symlink())
    return Sample(
        real_s=time.monotonic() - begun_s,
        hour=hour,
        rss_mb=int(status["VmRSS"].split()[0]) / 1024,
        descriptors=len(os.listdir(f"/proc/{process.pid}/fd")),
        threads=int(status["Threads"]),
        disk_mb=disk / 1e6,
    )


def slopes(samples: list[Sample]) -> dict[str, tuple[float, float]]:
    """Quantity -> its growth by simulated hour and by real hour, over the second half of the replay."""
    half = [each for each in samples if each.hour >= samples[-1].hour / 2]
    hours, real_h = np.array([each.hour for each in half]), np.array([each.real_s for each in half]) / 3600
    result = {}
    for name in ("rss_mb", "descriptors", "threads", "disk_mb"):
        values = np.array([getattr(each, name) for each in half], float)
        result[name] = float(np.polyfit(hours, values, 1)[0]), float(np.polyfit(real_h, values, 1)[0])
    return result


def soak(root: Path, hours: float, speed: float, days_before: int, nights_on: bool) -> dict[str, Any]:
    home, recorded = root / "home", root / "recorded"
    recordings = [
        record(recorded / f"day-{day}", min(24.0, hours), START_S + (day - days_before) * DAY_S, seed=100 + day)
        for day in range(days_before)
    ]
    replayed = record(recorded / "replayed", hours, START_S, seed=1)
    length_h = (Recording.open(replayed).end_s - Recording.open(replayed).start_s) / 3600
    home.mkdir(mode=0o700)
    visitor = Visitor(free_port())
    nights = Nights(home, [*recordings, replayed])
    command = [sys.executable, "-m", "clustertwin", "up", "--replay", str(replayed), "--speed", str(speed)]
    command += ["--home", str(home), "--port", str(visitor.port), "--no-browser", "--no-learn"]
    with (root / "service.log").open("ab") as log:
        service = subprocess.Popen(command, stdout=log, stderr=log)
    begun_s = time.monotonic()
    samples: list[Sample] = []
    try:
        while visitor.get("/healthz") is None:
            if service.poll() is not None or time.monotonic() - begun_s > READY_S:
                raise SystemExit((root / "service.log").read_text()[-2000:])
            time.sleep(0.3)
        visitor.failed_loads = 0
        for day in range(-days_before, 0):
            nights.add(_day(day))
        days_done = 0
        while True:
            snapshot = visitor.read("/api/v1/snapshot") or {}
            hour = max((snapshot.get("now_s") or START_S) - START_S, 0) / 3600
            while days_done < hour // 24:
                nights.add(_day(days_done))
                days_done += 1
            if nights_on:
                nights.step()
            visitor.get(PAGES[len(samples) % len(PAGES)])
            for row in (visitor.read("/api/v1/nodes") or [])[:1]:
                visitor.get(f"/nodes/{row['node']}")
            visitor.judge()
            samples.append(sample(service, begun_s, hour, home))
            if snapshot.get("replay_ended") and not (nights_on and nights.busy):
                break
            if service.poll() is not None:
                raise SystemExit((root / "service.log").read_text()[-2000:])
            time.sleep(0.5)
        events = len(visitor.judged)
    finally:
        nights.close()
        service.kill()
        service.wait()
    running = [each for each in samples if each.hour < length_h] or samples
    return {
        "hours": round(running[-1].hour, 2),
        "real_s": round(running[-1].real_s, 1),
        "samples": len(running),
        "first": asdict(running[0]),
        "middle": asdict(running[len(running) // 2]),
        "last": asdict(running[-1]),
        "slopes": slopes(running),
        "events": events,
        "verdicts": visitor.verdicts,
        "loads": visitor.loads,
        "failed_loads": visitor.failed_loads,
        "nights": nights.codes,
        "log_bytes": (root / "service.log").stat().st_size,
    }


def _day(number: int) -> str:
    return datetime.fromtimestamp(START_S + number * DAY_S, UTC).date().isoformat()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--speed", type=float, default=120.0)
    parser.add_argument("--days-before", type=int, default=1)
    parser.add_argument("--no-nights", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        result = soak(Path(directory), options.hours, options.speed, options.days_before, not options.no_nights)
    if options.json:
        print(json.dumps(result))
        return
    first, middle, last = result["first"], result["middle"], result["last"]
    print(f"{result['hours']} simulated hours in {result['real_s']} s; {result['events']} events, "
          f"{result['verdicts']} verdicts, {result['loads']} loads ({result['failed_loads']} failed), "
          f"nights with exit codes {result['nights']}, log {result['log_bytes']} bytes")  # fmt: skip
    print("| quantity | start | middle | end | by simulated hour | by real hour |\n|---|---:|---:|---:|---:|---:|")
    for name, (by_hour, by_real_hour) in result["slopes"].items():
        values = " | ".join(f"{each[name]:.1f}" for each in (first, middle, last))
        print(f"| {name} | {values} | {by_hour:+.3f} | {by_real_hour:+.2f} |")


if __name__ == "__main__":
    main()
