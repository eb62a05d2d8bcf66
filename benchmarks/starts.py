"""Forecasts of starts on real logs, asked at submission: calibrated on the first half, judged on the second.

    python benchmarks/starts.py 500 KTH-SP2.easy.swf.gz 100 SDSC-SP2.easy.swf.gz 128

The first number is how many jobs of each half are asked about. The truth is the log's schedule with EASY backfilling.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from clustertwin.workload.formats import read
from clustertwin.workload.simulator.forecast.start_distribution import FutureSettings
from clustertwin.workload.simulator.forecast.start_replay import answer_questions, calibrated_levels, score_answers


def main() -> None:
    count = int(sys.argv[1])
    for path, procs in zip(sys.argv[2::2], map(int, sys.argv[3::2]), strict=True):
        jobs = read(Path(path), lenient=True)
        n, rng = len(jobs), np.random.default_rng(0)
        halves = [np.arange(n // 10, n // 2), np.arange(n // 2, n)]  # the first tenth only fills the history
        asked = [np.sort(rng.choice(half, count, replace=False)) for half in halves]
        first = list(answer_questions(jobs, procs, asked[0], FutureSettings()))
        levels = calibrated_levels(first)
        print(Path(path).name, "first half", score_answers(first), flush=True)
        second = list(answer_questions(jobs, procs, asked[1], FutureSettings()))
        print(Path(path).name, "second half, quantiles 0.1 and 0.9", score_answers(second))
        print(Path(path).name, f"second half, quantiles {levels}", score_answers(second, levels), flush=True)


if __name__ == "__main__":
    main()
