"""The zoo's part of `twin campaign run|types`: options -> recorded runs of real programs, or tables of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from clustertwin.cli.output import err, print_json, print_table
from clustertwin.core.errors import SettingsError

if TYPE_CHECKING:
    from clustertwin.cli.campaign_run import CampaignOptions

CATALOGUES = ("jobs", "zoo")


def check_catalogue(name: str) -> None:
    if name not in CATALOGUES:
        raise SettingsError(f"unknown catalogue {name!r}; available catalogues: {', '.join(CATALOGUES)}")


def run_zoo(options: CampaignOptions) -> None:
    """Record the runs that are missing in `--out`, and print a row for each run that is there."""
    from clustertwin.telemetry.campaign.jobs.pinning import cpu_list
    from clustertwin.telemetry.campaign.zoo.zoo_card import write_card
    from clustertwin.telemetry.campaign.zoo.zoo_data import load_zoo, summary_of
    from clustertwin.telemetry.campaign.zoo.zoo_queue import check_host, plan_runs, record_queue
    from clustertwin.telemetry.campaign.zoo.zoo_run import RunSchedule, stop_on_signals

    if options.via != "direct":
        raise SettingsError("the zoo is recorded on this host; --via slurm is for --catalogue jobs")
    cpus = cpu_list(options.cpus) if options.cpus else tuple(sorted(os.sched_getaffinity(0)))
    runs = list(plan_runs(options.rounds, options.types, options.faults, options.faults_per_run, len(cpus)))
    check_host()
    stop_on_signals()
    cache = options.scratch or options.out / "cache"
    record_queue(
        runs,
        RunSchedule(*options.phase_seconds),
        cpus,
        options.out,
        cache=cache,
        most_runs=options.most_runs,
        report=lambda text: err.print(text, highlight=False),
    )
    write_card(options.out)
    rows = [summary_of(run) for run in load_zoo(options.out)]
    if options.json:
        print_json(rows)
    else:
        print_table("Recorded runs", tuple(rows[0]), [tuple(row.values()) for row in rows])
    failures = sorted(options.out.glob("*.failed"))
    for path in failures:
        err.print(f"{path.stem} failed: {path.read_text().strip()}", style="red", highlight=False)
    if failures:
        raise typer.Exit(1)


def show_zoo(json: bool) -> None:
    from clustertwin.telemetry.campaign.zoo.program_table import PROGRAMS
    from clustertwin.telemetry.campaign.zoo.zoo_faults import FAULTS

    programs = [
        (name, row.kind, row.about, f"missing: {', '.join(row.missing)}" if row.missing else "yes")
        for name, row in PROGRAMS.items()
    ]
    faults = [(name, row.about, row.cause) for name, row in FAULTS.items()]
    tables: dict[str, tuple[tuple[str, ...], Sequence[tuple[str, ...]]]] = {
        "programs": (("program", "kind", "what it does", "installed"), programs),
        "faults": (("fault", "what is imposed", "cause"), faults),
    }
    if json:
        print_json(
            {name: [dict(zip(columns, row, strict=True)) for row in rows] for name, (columns, rows) in tables.items()}
        )
        return
    for name, (columns, rows) in tables.items():
        print_table(f"Zoo: {name}", columns, rows)
