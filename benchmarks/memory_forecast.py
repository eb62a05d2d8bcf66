"""Forecasts of the end of memory: simulated and recorded memory -> how early, how right, and how often for nothing.

    python benchmarks/memory_forecast.py                     # simulated
    python benchmarks/memory_forecast.py --hpas DIR          # and recorded: HPAS runs, in the form of npz files

Simulated runs use other seeds for choosing (`--part choose`) than for reporting. Of the recorded runs, every second one
was used to choose the constants of `memory_forecast.py`; the others are reported. A recorded leak ends before memory
does, so its limit is set to the level that it reached: the true time is then known.

The rival is what sites have in their alert rules: `predict_linear(…[5m], 4 * 3600)`, a straight line through the last
five minutes that reaches the limit within four hours. It states no interval; a quarter to either side is taken for it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clustertwin.core.channels import CPU, NODE, Schema
from clustertwin.core.traces import NodeChannels
from clustertwin.telemetry.detection.forecast.memory_forecast import MemoryForecast
from clustertwin.telemetry.detection.forecast.memory_watch import MemoryWatch
from clustertwin.telemetry.moments.moment import LENGTH_S, Moment

MEMORY = Schema((NODE.channels[NODE.index("memory_used")],))
GB = 1e9
LIMITS_GB = (8, 16, 32, 64)
HORIZON_S = 4 * 3600


@dataclass(frozen=True)
class Run:
    """The level of one program's memory, second by second; `onset` and `end` are those of a leak, -1: none."""

    kind: str
    levels: np.ndarray  # (second,), as a part of its limit
    onset: int = -1
    end: int = -1  # the first second at the limit
    again: int = 0  # from here on a harmless program repeats what it did before


def noise(seconds: int, limit: float, rng: np.random.Generator) -> np.ndarray:
    """What a program does besides: jitter of pages, and buffers that come and go slowly."""
    white = rng.normal(0, 2e6, seconds)
    slow = np.cumsum(rng.normal(0, 1e6, seconds))
    slow -= np.convolve(np.pad(slow, 150, mode="edge"), np.ones(301) / 301, "valid")
    return (white + slow) / limit


def leak(rate_mb: float, limit_gb: float, rng: np.random.Generator) -> Run:
    """Chunks of 1 to 40 MB, at a rate that wanders by about 15 %, after 10 to 40 minutes without a leak."""
    limit, base = limit_gb * GB, rng.uniform(0.1, 0.5)
    onset = int(rng.uniform(600, 2400))
    seconds = int((1 - base) * limit / (rate_mb * 1e6) * 2) + 60
    wander = np.exp(_autoregression(seconds, 300, 0.15, rng))
    chunk = rng.uniform(1, 40) * 1e6
    grown = np.floor(np.cumsum(rate_mb * 1e6 * wander) / chunk) * chunk / limit
    levels = base + np.concatenate([np.zeros(onset), grown]) + noise(onset + seconds, limit, rng)
    end = int(np.argmax(levels >= 1)) if (levels >= 1).any() else len(levels)
    return Run(f"leak of {rate_mb:g} MB/s", np.clip(levels[:end], 0, 1), onset, end)


def harmless(kind: str, limit_gb: float, rng: np.random.Generator, seconds: int = 3 * 3600) -> Run:
    """Programs that use memory and do not leak."""
    limit, base = limit_gb * GB, rng.uniform(0.05, 0.3)
    t = np.arange(seconds)
    room, again = 1 - base, 0
    if kind in STOPS:
        top, ramp = rng.uniform(*STOPS[kind]), 10 ** rng.uniform(0.5, 3.3)
        shape = np.minimum(t / ramp, 1) ** rng.choice([0.5, 1.0, 1.0])
        levels = base + room * top * shape
    elif kind == "allocates in steps":
        steps = np.sort(rng.uniform(0, seconds, rng.integers(2, 9)))
        levels = base + room * 0.8 * np.searchsorted(steps, t) / len(steps)
    elif kind == "fills and frees":
        period, low = 10 ** rng.uniform(1.3, 3.3), rng.uniform(0, 0.5)
        levels = base + room * rng.uniform(0.2, 0.7) * (low + (1 - low) * (t / period % 1))
        again = int(period)
    else:
        period = 10 ** rng.uniform(2, 4)
        levels = base + room * 0.3 * (1 + np.sin(2 * np.pi * t / period)) * rng.uniform(0.1, 1)
        again = int(period)
    return Run(kind, np.clip(levels + noise(seconds, limit, rng), 0, 1), again=again)


#: How much of the free memory a program takes before it stops.
STOPS = {"takes up to 35 % and stops": (0.02, 0.35), "takes 35 to 90 % and stops": (0.35, 0.9)}
HARMLESS = (*STOPS, "allocates in steps", "fills and frees", "rises and falls")


def simulated(seed: int, runs: int) -> list[Run]:
    rng = np.random.default_rng(seed)
    found = [leak(rate, limit, rng) for rate in (5, 50) for limit in LIMITS_GB for _ in range(runs // 4)]
    return found + [harmless(kind, rng.choice(LIMITS_GB), rng) for kind in HARMLESS for _ in range(runs)]


def hpas(directory: Path) -> Iterator[tuple[str, np.ndarray, list[tuple[int, int]]]]:
    """Name, memory in use (second,), and the seconds of its leaks; overlapping leaks are joined."""
    for path in sorted(directory.glob("*.npz")):
        with np.load(path, allow_pickle=False) as data:
            names = data["memory_names"].tolist()
            memory = data["memory_kb"]
            used = 1 - memory[:, names.index("MemAvailable")] / memory[:, names.index("MemTotal")]
            spans = sorted((int(s), int(e)) for kind, s, e in data["anomalies"].tolist() if kind == "memleak")
        joined: list[tuple[int, int]] = []
        for start, end in spans:
            if joined and start < joined[-1][1]:
                joined[-1] = joined[-1][0], max(end, joined[-1][1])
            else:
                joined.append((start, end))
        yield path.stem, used, joined


def recorded(directory: Path, part: str) -> list[Run]:
    """The leaks of every second run with the level that they reached as limit, and all runs with their own limit."""
    runs = []
    for number, (_, used, leaks) in enumerate(hpas(directory)):
        if (number % 2 == 0) != (part == "choose"):
            continue
        if not leaks:
            runs.append(Run("no leak, its own limit", used))
        else:
            runs.append(Run("leak, its own limit", used[: leaks[-1][1]], leaks[0][0], -1))
        for start, end in leaks:
            top = float(used[start : min(end, len(used))].max())
            reached = start + int(np.argmax(used[start:] >= top))
            runs.append(Run("leak, limit where it ended", used[:reached] / top, start, reached))
    return runs


def forecasts(runs: list[Run], every_s: int) -> list[list[MemoryForecast]]:
    """The forecasts of each run, as a service would make them. The runs are the nodes of one cluster."""
    found: list[list[MemoryForecast]] = [[] for _ in runs]
    length = max(len(run.levels) for run in runs)
    levels = np.full((len(runs), LENGTH_S + length), np.nan, np.float32)
    for row, run in enumerate(runs):
        levels[row, LENGTH_S : LENGTH_S + len(run.levels)] = run.levels
    watch, nodes = MemoryWatch(), tuple(str(i) for i in range(len(runs)))
    empty = np.zeros(0, np.int32)
    for second in range(every_s, length + 1, every_s):
        window = levels[:, second : second + LENGTH_S, None]
        values = np.zeros((0, LENGTH_S, len(CPU)), np.float32)
        channels = NodeChannels(MEMORY, window)
        moment = Moment(second, CPU, values, values[..., 0] > 0, nodes, empty, empty, (), empty, empty, channels)
        for each in watch.forecast(moment):
            if second <= len(runs[int(each.node)].levels):
                found[int(each.node)].append(each)
    return found


def straight_lines(runs: list[Run], every_s: int) -> list[list[MemoryForecast]]:
    """The forecasts of the rival."""
    found: list[list[MemoryForecast]] = [[] for _ in runs]
    t = np.arange(LENGTH_S) - (LENGTH_S - 1) / 2
    for made, run in zip(found, runs, strict=True):
        for second in range(LENGTH_S, len(run.levels) + 1, every_s):
            window = run.levels[second - LENGTH_S : second]
            rate = float(window @ t / (t @ t))
            level = float(window.mean() + rate * t[-1])
            remaining_s = (1 - level) / rate if rate > 0 else np.inf
            if remaining_s < HORIZON_S:
                around = max(remaining_s, 0) * 0.75, max(remaining_s, 0) * 1.25
                made.append(MemoryForecast("", "", second, remaining_s, *around, level, rate, LENGTH_S))
    return found


def row_of_kind(kind: str, runs: list[Run], found: list[list[MemoryForecast]]) -> dict[str, object]:
    """One row: warned, half of the time ahead, coverage of the interval, and of the naive forecast's ±25 %."""
    leaks = [(run, made) for run, made in zip(runs, found, strict=True) if run.kind == kind]
    row: dict[str, object] = {"kind": kind, "runs": len(leaks)}
    if all(run.end < 0 for run, _ in leaks):
        false = [any(each.end_s < run.onset or run.onset < 0 for each in made) for run, made in leaks]
        row["runs with a forecast outside a leak"] = int(sum(false))
        if any(run.again for run, _ in leaks):
            row["of them after its first rise"] = sum(
                any(each.end_s > run.again for each in made) for run, made in leaks
            )
        row["hours"] = round(sum(len(run.levels) for run, _ in leaks) / 3600, 1)
        return row
    ahead, covered, errors, lead, early = [], [], [], [], 0
    for run, made in leaks:
        early += any(each.end_s < run.onset for each in made)
        inside = [each for each in made if run.onset <= each.end_s < run.end]
        first = inside[0].end_s if inside else run.end
        ahead.append(run.end - first >= (run.end - run.onset) / 2)
        lead.append((run.end - first) / (run.end - run.onset))
        for each in inside:
            true_s = run.end - each.end_s
            covered.append(each.earliest_s <= true_s <= each.latest_s)
            errors.append(abs(each.remaining_s - true_s) / true_s)
    return row | {
        "half ahead": round(float(np.mean(ahead)), 3),
        "ahead, median": round(float(np.median(lead)), 3),
        "forecasts": len(covered),
        "coverage": round(float(np.mean(covered)), 3) if covered else None,
        "error, median": round(float(np.median(errors)), 3) if errors else None,
        "runs with a forecast before the leak": early,
    }


def _autoregression(seconds: int, memory_s: float, deviation: float, rng: np.random.Generator) -> np.ndarray:
    keep = np.exp(-60 / memory_s)
    minutes = np.empty(seconds // 60 + 2)
    minutes[0] = rng.normal(0, deviation)
    for i in range(1, len(minutes)):
        minutes[i] = keep * minutes[i - 1] + rng.normal(0, deviation * np.sqrt(1 - keep**2))
    return np.interp(np.arange(seconds) / 60, np.arange(len(minutes)), minutes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hpas", type=Path, help="a directory of HPAS runs")
    parser.add_argument("--part", choices=("choose", "report"), default="report")
    parser.add_argument("--runs", type=int, default=40, help="simulated runs of each kind (40)")
    parser.add_argument("--every", type=int, default=10, help="seconds between forecasts (10)")
    options = parser.parse_args()
    groups = [("simulated", simulated(1 if options.part == "choose" else 2, options.runs))]
    if options.hpas:
        groups.append(("recorded", recorded(options.hpas, options.part)))
    for name, runs in groups:
        by_method = {"ours": forecasts(runs, options.every), "predict_linear": straight_lines(runs, options.every)}
        for kind in dict.fromkeys(run.kind for run in runs):
            for method, made in by_method.items():
                row = {"data": name, "part": options.part, "method": method} | row_of_kind(kind, runs, made)
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
