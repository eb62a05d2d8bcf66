"""Three nights on recordings of a real cluster: what each day's champion would have disturbed people with on the next.

    python benchmarks/nights.py DATA --home HOME [--models linear,ae] [--mlflow URL]

DATA holds spark-cluster/*.npz (t, ratio): a Spark cluster of four nodes with 32 threads each, on three days. They are
written as recordings below HOME, and each night is the command that a person types. Nothing is known to be wrong on
these days, so that every event is a false one.
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
from clustertwin.telemetry.learning.champions import champion_store
from clustertwin.telemetry.recording import Recorder
from clustertwin.telemetry.studies.event_metrics import count_events
from detection_real import read_spark

_STRIDE_S = 30


def written(home: Path, name: str, traces: list[Trace]) -> None:
    directory = home / "recording" / name
    if directory.exists():
        return
    with Recorder.create(directory, {trace.node: trace.cpus for trace in traces}) as recorder:
        for trace in traces:
            recorder.append(trace)


def night(home: Path, day: str, flags: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "clustertwin", "learn", "run", "--home", str(home), "--day", day, *flags, "--json"]
    done = subprocess.run(command, env={**os.environ, "TZ": "UTC"}, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def false_events(detector: Detector, recordings: list[list[Trace]]) -> tuple[int, float]:
    counts = [count_events(detector, traces, _STRIDE_S) for traces in recordings]
    return sum(count.false_events for count in counts), sum(count.node_days for count in counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--models", default="linear,ae")
    parser.add_argument("--mlflow", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    days: dict[str, list[list[Trace]]] = {}
    for path in sorted(options.data.glob("spark-cluster/*.npz")):
        traces = read_spark(path)
        written(options.home, path.stem, traces)
        days.setdefault(datetime.fromtimestamp(traces[0].start_s, UTC).date().isoformat(), []).append(traces)
    flags = ["--models", options.models, *(["--mlflow", options.mlflow] if options.mlflow else [])]
    print("| day | node-days | false events, as shipped | … with the champion of the night before | its night | why |")
    print("|---" * 6 + "|")
    serving = shipped = bundled()
    for day in sorted(days):
        (plain, node_days), (ours, _) = (false_events(one, days[day]) for one in (shipped, serving))
        found = night(options.home, day, flags)
        serving = champion_store.champion(options.home)
        print(f"| {day} | {node_days:.2f} | {plain} | {ours} | {found['outcome']} | {found['because']} |", flush=True)
        for note in (*found["refused"].items(), *found["notes"]):
            print("   ", note, file=sys.stderr)
    print(f"\nin service: {serving.version}")


if __name__ == "__main__":
    main()
