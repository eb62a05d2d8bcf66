"""A million threads as shards: measured services, one after the other, and a model whose prediction is checked.

    python benchmarks/scale.py [--total 1000000] [--shard 25600] [--shards 0] [--check 102400 204800] [--stride 10]
                               [--seconds 20] [--anywhere] [--json]

A shard is a whole service with its own exporters (`service.py`): it reads every thread once a second over HTTP, scores
all of them with all views, and stores events. Nothing is left out, so a shard has the density of the real thing. All
shards of the total are measured in turn, each in a fresh process with other simulated jobs; `--shards 3` measures three
of them. A quarter of a shard is measured too, to tell what a thread costs from what a service costs.

The model is linear: load, memory and wait of a service are a constant and a part for each thread. It predicts services
of other sizes, and `--check` measures those. What joins the shards, one table of all nodes a second, is measured with
tables of the right size and is added. The bytes are 71 for each thread and second (`docs/capacity.md`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

SERVICE = Path(__file__).parent / "service.py"
NODE_THREADS = 128
THREAD_BYTES = 71  # of a second on the network
QUANTITIES = ("load", "rss_mb", "p50_s", "p99_s")


@dataclass(frozen=True, slots=True)
class Line:
    """A constant and a part for each thread."""

    fixed: float
    each: float

    def at(self, threads: int) -> float:
        return self.fixed + self.each * threads


def fit(rows: list[dict[str, Any]]) -> dict[str, Line]:
    """The model of measured services of at least two sizes."""
    threads = np.array([row["threads"] for row in rows], float)
    lines = {}
    for name in QUANTITIES:
        each, fixed = np.polyfit(threads, [row[name] for row in rows], 1)
        lines[name] = Line(float(fixed), float(each))
    return lines


def measure(threads: int, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, str(SERVICE), "--threads", str(threads), "--stride", str(options.stride)]
    command += ["--seconds", str(options.seconds), "--seed", str(seed), "--json", *["--anywhere"] * options.anywhere]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    row: dict[str, Any] = json.loads(done.stdout)[0]
    return row


def joining_s(nodes: int, shards: int) -> tuple[float, int]:
    """CPU time and bytes to read the tables of all shards once and to order their nodes by score."""
    rng = np.random.default_rng(0)
    tables = []
    for shard in np.array_split(np.arange(nodes), shards):
        rows = [
            {"node": f"n{node:05d}", "phase": "watching", "threads": NODE_THREADS, "heard_s": 1_767_225_600,
             "score": float(score), "error": 0.01, "alarming": 0, "unknown": 0, "jobs": [f"n{node:05d}-17"]}
            for node, score in zip(shard.tolist(), rng.exponential(size=len(shard)), strict=True)
        ]  # fmt: skip
        tables.append(orjson.dumps(rows))
    begun_s = time.process_time()
    joined = [row for table in tables for row in orjson.loads(table)]
    joined.sort(key=lambda row: -row["score"])
    return time.process_time() - begun_s, sum(map(len, tables))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--total", type=int, default=1_000_000)
    parser.add_argument("--shard", type=int, default=25_600)
    parser.add_argument("--shards", type=int, default=0, help="how many to measure; 0: all")
    parser.add_argument("--check", type=int, nargs="*", default=[102_400, 204_800])
    parser.add_argument("--stride", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--anywhere", action="store_true", help="bind no process to a core")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    shards = -(-options.total // options.shard)
    rows = [measure(max(options.shard // 4, NODE_THREADS), 1000, options)]
    for seed in range(options.shards or shards):
        rows.append(measure(options.shard, seed, options))
        if not options.json:
            print(_row("shard", rows[-1]), flush=True)
    model = fit(rows)
    checks = [measure(threads, 2000, options) for threads in options.check]
    cpu_s, table_bytes = joining_s(options.total // NODE_THREADS, shards)
    measured = rows[1:]
    result = {
        "shards": shards,
        "measured_shards": len(measured),
        "largest_p99_s": max(row["p99_s"] for row in measured),
        "cores": shards * float(np.mean([row["load"] for row in measured])) + cpu_s,
        "memory_gb": shards * float(np.mean([row["rss_mb"] for row in measured])) / 1024,
        "network_mb_a_second": options.total * THREAD_BYTES / 1e6,
        "joining_s": cpu_s,
        "joining_bytes": table_bytes,
        "model": {name: (line.fixed, line.each) for name, line in model.items()},
        "checks": [
            {"threads": row["threads"], **{name: (model[name].at(row["threads"]), row[name]) for name in QUANTITIES}}
            for row in checks
        ],
        "rows": rows,
    }
    if options.json:
        print(json.dumps(result))
        return
    for check in result["checks"]:
        values = ", ".join(f"{name} {check[name][0]:.3f} → {check[name][1]:.3f}" for name in QUANTITIES)
        print(f"check of the model at {check['threads']:,} threads (predicted → measured): {values}")
    print(
        f"{options.total:,} threads in {shards} shards of {options.shard:,} ({len(measured)} measured): "
        f"{result['cores']:.1f} cores, {result['memory_gb']:.1f} GB, {result['network_mb_a_second']:.0f} MB/s, "
        f"p99 at most {result['largest_p99_s'] + cpu_s:.2f} s; joining {cpu_s * 1000:.0f} ms and "
        f"{table_bytes / 1e6:.1f} MB a second"
    )


def _row(what: str, row: dict[str, Any]) -> str:
    return (
        f"| {what} | {row['threads']:,} | {row['load']:.1%} | {row['p50_s']:.2f} s | {row['p99_s']:.2f} s "
        f"| {row['rss_mb']:,.0f} MB | {row['stride_now_s']} s |"
    )


if __name__ == "__main__":
    main()
