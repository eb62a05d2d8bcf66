"""Forecasts of starts on real logs, asked at submission and judged on the second half.

    python benchmarks/starts.py 400 KTH-SP2.easy.swf.gz 100 SDSC-SP2.easy.swf.gz 128

The first number is how many jobs of each half are asked about. The truth is the log's schedule with EASY backfilling.
Intervals are widened by the errors of the newest forecasts whose jobs had started; the first half fills them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from clustertwin.workload.formats import read
from clustertwin.workload.simulator.forecast.start_distribution import FutureSettings
from clustertwin.workload.simulator.forecast.start_replay import judge_forecasts


def main() -> None:
    for path, procs in zip(sys.argv[2::2], map(int, sys.argv[3::2]), strict=True):
        score, scale = judge_forecasts(read(Path(path), lenient=True), procs, int(sys.argv[1]), FutureSettings())
        print(Path(path).name, f"second half, last {scale}", score, flush=True)


if __name__ == "__main__":
    main()
