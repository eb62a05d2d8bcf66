"""twin sched simulate-site, validate, compare-config: a log on a Slurm site, as slurmctld would schedule it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from clustertwin.cli.log_argument import log_argument
from clustertwin.cli.options import MOST_SEED
from clustertwin.cli.output import Json, err, interval, print_json, print_table
from clustertwin.cli.sched_notes import SIMULATING_SITE
from clustertwin.core.formatting import counted

Log = log_argument("A job log: sacct --parsable2, or sbatch events")
SITE_HELP = "A directory with slurm.conf (and sacctmgr files), a slurm.conf, or a .toml file."
FirstJobs = typer.Option(0, "--jobs", min=0, help="Take only the first jobs of the log; 0 takes all.")


def simulate_site(
    log: Path = Log,
    site: Path = typer.Option(..., "--site", help=SITE_HELP, exists=True),
    jobs: int = FirstJobs,
    json: bool = Json,
) -> None:
    """Schedule a log on a Slurm site and print waits by partition."""
    schedule = _schedule(log, site, jobs)
    from clustertwin.workload.slurm.site_comparison import unused

    figures, notes = schedule.by(schedule.partitions()), unused(schedule, schedule.log)
    if json:
        print_json({**_whole(schedule), "partitions": [asdict(row) for row in figures], "not_used": notes})
        return
    whole = _whole(schedule)
    print_table(
        f"{log.name} on {schedule.site.name}: {whole['jobs']:,} jobs, utilisation {whole['utilisation_ratio']:.3f}, "
        f"{schedule.backfilled:,} started by backfill, {schedule.preemptions:,} preemptions (simulated)",
        ["partition", "jobs", "started", "mean wait s", "median", "95 %"],
        [[f.name, f.jobs, f.started, round(f.mean_wait_s), round(f.median_wait_s), round(f.p95_wait_s)]
         for f in figures if f.started],
    )  # fmt: skip
    _print_notes(notes)


def validate(
    log: Path = Log,
    site: Path = typer.Option(..., "--site", help=SITE_HELP, exists=True),
    jobs: int = FirstJobs,
    json: bool = Json,
) -> None:
    """Compare simulated with recorded waits of a sacct log, by partition, QOS, user and size."""
    from clustertwin.workload.slurm.site_comparison import agreement, unused
    from clustertwin.workload.slurm.wait_causes import explain_waits

    schedule = _schedule(log, site, jobs)
    table, notes, rest = agreement(schedule), unused(schedule, schedule.log), explain_waits(schedule)
    if json:
        groups = {kind: [asdict(row) for row in rows] for kind, rows in table.items()}
        print_json({**_whole(schedule), "agreement": groups, "rest": asdict(rest), "not_used": notes})
        return
    print_table(
        f"{log.name}: simulated against recorded waits",
        ["by", "group", "jobs", "recorded s", "simulated s", "Spearman", "in cycles", "median error s", "90 %",
         "within 60 s"],
        [
            [kind, r.name, r.jobs, round(r.recorded_wait_s), round(r.simulated_wait_s), r.spearman,
             r.spearman_of_cycles, round(r.median_error_s), round(r.p90_error_s), r.within_minute_ratio]
            for kind, rows in table.items()
            for r in rows[:10]
        ],
    )  # fmt: skip
    whole, cycle_s = table["all"][0], schedule.site.scheduler.bf_interval
    if whole.within_cycle_ratio > 0.1:
        err.print(
            f"{whole.within_cycle_ratio:.0%} of the jobs wait less than a scheduling cycle ({cycle_s:g} s) on both "
            'sides. Their order by seconds is Slurm\'s timing, which lowers Spearman; "in cycles" counts whole cycles.'
        )
    _print_rest(rest, schedule.log)
    _print_notes(notes)


def compare_config(
    log: Path = Log,
    site: list[Path] = typer.Option(..., "--site", help=f"Twice: the old site, then the new one. {SITE_HELP}"),
    jobs: int = FirstJobs,
    futures: int = typer.Option(0, min=0, help="Also schedule this number of logs with other run times."),
    seed: int = typer.Option(0, min=0, max=MOST_SEED, help="Random seed of the futures."),
    json: bool = Json,
) -> None:
    """Schedule a log under two configurations and show who waits longer and who shorter."""
    from clustertwin.core.errors import SettingsError
    from clustertwin.workload.slurm.site_comparison import unused

    if len(site) != 2:
        raise SettingsError(f"compare-config takes --site twice, the old site and the new one; you gave {len(site)}")
    (old, new), table = _compared(log, site, jobs, futures, seed)
    if json:
        groups = {kind: [asdict(row) for row in rows] for kind, rows in table.items()}
        notes = {"old": unused(old, old.log), "new": unused(new, new.log)}
        print_json({"old": _whole(old), "new": _whole(new), "changes": groups, "futures": futures, "not_used": notes})
        return
    in_futures = ["80 % of futures"] if futures else []
    print_table(
        f"{log.name}: {site[0]} against {site[1]} (simulated); utilisation {old.utilisation():.3f} and "
        f"{new.utilisation():.3f}",
        ["by", "group", "jobs", "old wait s", "new wait s", "new / old", *in_futures],
        [
            [kind, row.name, row.jobs, round(row.old_wait_s), round(row.new_wait_s), row.ratio,
             *([interval(row.ratio_low, row.ratio_high)] if futures else [])]
            for kind, rows in table.items()
            for row in rows[:10]
        ],
    )  # fmt: skip
    _print_notes(unused(new, new.log))


def _compared(log: Path, sites: list[Path], jobs: int, futures: int, seed: int) -> tuple[Any, Any]:
    """The schedules of the log under both sites, and the table of changes with intervals over the futures."""
    import numpy as np

    from clustertwin.workload.slurm.joblog.job_readers import read_log
    from clustertwin.workload.slurm.site.site_directory import read_site
    from clustertwin.workload.slurm.site_futures import changes_over_futures, future_log
    from clustertwin.workload.slurm.site_simulation import simulate_site as run

    recorded, both = read_log(log), [read_site(path) for path in sites]
    recorded = recorded.first(jobs) if jobs else recorded
    logs = [recorded, *(future_log(recorded, np.random.default_rng((seed, k))) for k in range(futures))]
    with err.status(SIMULATING_SITE):
        pairs = [(run(both[0], each), run(both[1], each)) for each in logs]
    return pairs[0], changes_over_futures(pairs)


def _schedule(log: Path, site: Path, jobs: int) -> Any:
    from clustertwin.workload.slurm.joblog.job_readers import read_log
    from clustertwin.workload.slurm.site.site_directory import read_site
    from clustertwin.workload.slurm.site_simulation import simulate_site as run

    read = read_log(log)
    with err.status(SIMULATING_SITE):
        return run(read_site(site), read.first(jobs) if jobs else read)


def _print_rest(rest: Any, log: Any) -> None:
    """What explains the difference between recorded and simulated waits."""
    from datetime import UTC, datetime

    from clustertwin.workload.slurm.wait_causes import WAIT_CAUSES

    print_table(
        "what explains the rest",
        ["cause", "jobs", "recorded − simulated h", "which means"],
        [[cause, rest.jobs[cause], round(rest.extra_s[cause] / 3600, 1), WAIT_CAUSES[cause]] for cause in WAIT_CAUSES],
    )
    clock = "local time" if log.local else "UTC"
    if rest.outages:
        print_table(
            f"{counted(len(rest.outages), 'outage')} inferred from the log",
            ["partition", f"from ({clock})", "hours", "CPUs in use", "jobs that would have fitted"],
            [
                [each.partition, datetime.fromtimestamp(log.epoch_s + each.start_s, UTC).strftime("%Y-%m-%d %H:%M"),
                 round((each.end_s - each.start_s) / 3600, 1), f"{each.used_ratio:.0%}", each.waiting]
                for each in rest.outages[:50]
            ],
        )  # fmt: skip


def _whole(schedule: Any) -> dict[str, Any]:
    waits = schedule.by(["all"] * len(schedule.log))[0]
    return {
        "site": schedule.site.name,
        "jobs": len(schedule.log),
        "started": waits.started,
        "mean_wait_s": waits.mean_wait_s,
        "median_wait_s": waits.median_wait_s,
        "utilisation_ratio": schedule.utilisation(),
        "backfilled": schedule.backfilled,
        "preemptions": schedule.preemptions,
    }


def _print_notes(notes: list[str]) -> None:
    for note in notes:
        err.print(note, highlight=False)
