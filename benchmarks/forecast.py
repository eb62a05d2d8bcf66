"""Forecast the second half of logs from the first: coverage of the intervals and CRPS, beside three simple forecasts.

    python benchmarks/forecast.py LOG [LOG …] [--draws 20] [--seed 0] [--procs N]
    python benchmarks/forecast.py LOG [LOG …] --rolling 4

Nothing is fitted to the second half. `--rolling N` stays inside the first half: it cuts it at N places and judges each
time the rest of it. Design decisions were made with it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np


def row(name: str, skills: list) -> str:
    cells = [f"{name:24}", f"{skills[0].measure:8}", f"{np.mean([s.weeks for s in skills]):6.0f}"]
    cells += [f"{np.mean([s.coverage for s in skills]):9.0%}"]
    for part in ("crps", "first_half_again", "last_week_again", "first_half_shuffled"):
        cells.append(f"{np.mean([getattr(skill, part) for skill in skills]):12.4g}")
    return " ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", type=Path, nargs="+")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--procs", type=int, help="size of the machine in nodes (or cpus)")
    parser.add_argument("--rolling", type=int, default=0, help="origins inside the first half, instead of the second")
    options = parser.parse_args()

    from clustertwin.workload.formats import read
    from clustertwin.workload.studies.forecast_skill import forecast_skill
    from clustertwin.workload.studies.site_forecast import ForecastSettings

    settings = ForecastSettings(draws=options.draws, seed=options.seed, procs=options.procs)
    head = ("coverage", "CRPS", "first half", "last week", "shuffled")
    print(f"{'log':24} {'measure':8} {'weeks':>6} {head[0]:>9} " + " ".join(f"{name:>12}" for name in head[1:]))
    for path in options.logs:
        log = read(path, lenient=True)
        logs = [log]
        if options.rolling:
            first = log.take(slice(0, len(log) // 2))
            # A log of which the first half ends at the origin.
            logs = [_centred(first, share) for share in np.linspace(0.4, 0.8, options.rolling)]
        skills = [forecast_skill(each, settings)[0] for each in logs]
        for i in range(len(skills[0])):
            print(row(path.name.split(".")[0], [skill[i] for skill in skills]), flush=True)


def _centred(first, share: float):
    """The part of the first half around an origin: as many jobs after it as before, as far as there are any."""
    origin = int(share * len(first))
    span = min(origin, len(first) - origin)
    return first.take(slice(origin - span, origin + span))


if __name__ == "__main__":
    main()
