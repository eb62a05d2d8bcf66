"""Three nights on recordings of a real cluster: false events of each day's champion, beside the bundled model's.

    python benchmarks/nights.py DATA --home HOME [--models linear,ae] [--mlflow URL]

DATA holds spark-cluster/*.npz (t, ratio): a Spark cluster with four nodes of 32 threads, on three days. The traces are
written as recordings below HOME, and each night is one `twin learn run`. No anomaly is known on these days, so every
event counts as false.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from clustertwin.core.traces import Trace
from clustertwin.telemetry.detection.bundled import bundled
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.learning.champions.champion_store import load_champion
from clustertwin.telemetry.recording import Recorder
from clustertwin.telemetry.studies.event_metrics import count_events
from recorded_campaigns import spark_days

_STRIDE_S = 30


def record(home: Path, name: str, traces: list[Trace]) -> None:
    directory = home / "recording" / name
    if directory.exists():
        return
    with Recorder.create(directory, {trace.node: trace.cpus for trace in traces}) as recorder:
        for trace in traces:
            recorder.append(trace)


def run_night(home: Path, day: str, flags: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "clustertwin", "learn", "run", "--home", str(home), "--day", day, *flags, "--json"]
    process = subprocess.run(command, env={**os.environ, "TZ": "UTC"}, stdout=subprocess.PIPE, check=True)
    result: dict[str, Any] = json.loads(process.stdout)
    return result


def false_events(detector: Detector, traces: list[Trace]) -> tuple[int, float]:
    count = count_events(detector, traces, _STRIDE_S)
    return count.false_events, count.node_days


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--models", default="linear,ae")
    parser.add_argument("--mlflow", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    days: dict[str, list[Trace]] = {}
    for traces in spark_days(options.data / "spark-cluster"):
        day = datetime.fromtimestamp(traces[0].start_s, UTC).date().isoformat()
        record(options.home, day, traces)
        days[day] = traces
    flags = ["--models", options.models, *(["--mlflow", options.mlflow] if options.mlflow else [])]
    print("| day | node-days | false events, bundled model | false events, champion | its night | reason |")
    print("|---" * 6 + "|")
    champion = shipped = bundled()
    for day in sorted(days):
        (of_bundled, node_days), (of_champion, _) = (false_events(model, days[day]) for model in (shipped, champion))
        night = run_night(options.home, day, flags)
        champion = load_champion(options.home)
        cells = (day, f"{node_days:.2f}", of_bundled, of_champion, night["outcome"], night["because"])
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
        for note in (*night["refused"].items(), *night["notes"]):
            print("   ", note, file=sys.stderr)
    print(f"\nin service: {champion.version}")


if __name__ == "__main__":
    main()
