"""Months with programs that were never recorded, and a foreign site: seeds -> false events and faults found by day.

    python benchmarks/months.py --days 7 --seeds 0 1 2 --out DIR             # nobody gives a verdict
    python benchmarks/months.py --days 7 --seeds 0 1 2 --out DIR --vetting   # reviewers do

Every month begins with the shipped detector and follows the default strategy. A simulated day has 4 nodes of 16 threads
and 4 h, so 0.67 node-days: with three seeds one false event is 0.5 per node-day. The baseline "never" keeps the shipped
detector. A month that is in DIR is not simulated again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from clustertwin.telemetry.studies.month.month_report import DayResult, read_days
from clustertwin.telemetry.studies.month.month_settings import DEFAULT_STRATEGY, MonthSettings
from clustertwin.telemetry.studies.month.month_study import run_month
from clustertwin.telemetry.studies.month.simulated_month import MonthScenario, unseen_month

WORLDS: dict[str, Callable[[], MonthScenario]] = {
    "10 % of the jobs unseen": lambda: unseen_month(0.1, foreign=False),
    "35 % of the jobs unseen": lambda: unseen_month(0.35, foreign=False),
    "foreign site": lambda: unseen_month(0.0, foreign=True),
}


def months(world: str, arguments: argparse.Namespace, strategy: str) -> list[list[DayResult]]:
    """The days of the month of every seed."""
    results = []
    for seed in arguments.seeds:
        settings = MonthSettings(days=arguments.days, seed=seed)
        settings = replace(settings, world=WORLDS[world](), vetted=arguments.vetting)
        verdicts = "vetting" if arguments.vetting else "nobody"
        out = arguments.out / f"{world.split(' of')[0].replace(' ', '')}-{verdicts}-{seed}"
        run_month(settings, out, [strategy])
        results.append(read_days(out / f"{strategy}.json"))
    return results


def row(name: str, days: Sequence[DayResult]) -> str:
    """Days of all seeds -> false events per node-day and the parts of faults that were found."""

    def part(found: int, wrong: int) -> str:
        return f"{found} of {wrong} ({found / wrong:.2f})" if wrong else "none ran"

    false = sum(day.false_events for day in days) / len(days)
    notified = sum(day.false_events for day in days if not day.shadow) / len(days)
    wrong, found = sum(day.jobs_wrong for day in days), sum(day.jobs_found for day in days)
    new_wrong, new_found = sum(day.new_wrong for day in days), sum(day.new_found for day in days)
    usual = part(found - new_found, wrong - new_wrong)
    worst = min((day.jobs_found / day.jobs_wrong for day in days if day.jobs_wrong), default=float("nan"))
    return f"| {name} | {false:.2f} | {notified:.2f} | {usual} | {part(new_found, new_wrong)} | {worst:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--worlds", nargs="+", choices=list(WORLDS), default=list(WORLDS))
    parser.add_argument("--strategies", nargs="+", default=[DEFAULT_STRATEGY], help="such as never")
    parser.add_argument("--vetting", action="store_true", help="reviewers give verdicts; by default nobody does")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    print("| simulated | false events per node-day | of these notified | found, usual | found, new | worst day |")
    print("|---|---|---|---|---|---|")
    for world in arguments.worlds:
        for strategy in arguments.strategies:
            results = months(world, arguments, strategy)
            for name, chosen in (("day 1", slice(0, 1)), ("day 2", slice(1, 2)), ("from day 3", slice(2, None))):
                if days := [day for month in results for day in month[chosen]]:
                    print(row(f"{world}, {strategy}, {name}", days), flush=True)


if __name__ == "__main__":
    main()
