"""Run `twin sched start`: options -> the live queue, a log of the past -> when jobs start, as distributions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from clustertwin.cli.output import err, print_table
from clustertwin.cli.sched_notes import SIMULATING_SITE
from clustertwin.cli.sched_options import StartOptions
from clustertwin.core.errors import SettingsError
from clustertwin.core.foreign_files import read_text
from clustertwin.core.formatting import duration
from clustertwin.core.job_health import JobHealth, KnownHealth
from clustertwin.core.start_forecast import StartAnswer
from clustertwin.workload.formats import read
from clustertwin.workload.generators.future_submissions import future_submissions
from clustertwin.workload.machine_size import stated_machine_size
from clustertwin.workload.simulator.forecast.live_start import (
    LivePast,
    StartQuestion,
    forecast_queue,
    parse_like,
)
from clustertwin.workload.simulator.forecast.squeue import live_queue, read_size
from clustertwin.workload.simulator.forecast.start_distribution import FutureSettings
from clustertwin.workload.simulator.forecast.start_replay import judge_forecasts


@dataclass(frozen=True, slots=True)
class Starts:
    answers: Sequence[StartAnswer]
    running: dict[str, float]  # jobs that run, and since how many seconds
    held: int
    asked_s: float | None  # Unix time at which Slurm was asked; None for a file
    notes: tuple[str, ...] = ()  # what the site and the queue say that had no part in the forecast


def run_start(options: StartOptions) -> Starts:
    """The starts of the jobs that wait, of one of them, or of a job like the one described."""
    if options.job and options.like:
        raise SettingsError("set either --job or --like")
    question = StartQuestion(options.job, parse_like(options.like) if options.like else None, options.within_h * 3600)
    asked_s = time.time() if options.squeue is None else None
    if options.site is not None:
        return _on_site(options, question, asked_s)
    queue = live_queue(options.squeue)
    procs = options.procs or (read_size(options.unit) if options.squeue is None else 0)
    if not procs:
        raise SettingsError("a file does not contain the size of the machine; set --procs")
    past = None
    if options.past:
        log = read(options.past)
        rng = np.random.default_rng(options.seed)
        past = LivePast(log, future_submissions(log, 1.0, options.hours, rng) if options.hours > 0 else None)
    answers = forecast_queue(
        queue, past, procs, question, unit=options.unit, settings=FutureSettings(futures=options.futures),
        known=_known(options, queue.names[: queue.running]), seed=options.seed,
    )  # fmt: skip
    running = dict(zip(queue.names[: queue.running], queue.elapsed_s[: queue.running].tolist(), strict=True))
    return Starts(answers, running, queue.held, asked_s)


def _on_site(options: StartOptions, question: StartQuestion, asked_s: float | None) -> Starts:
    """The starts as slurmctld would give them, with the site's nodes, partitions and limits."""
    from clustertwin.workload.slurm.joblog.job_readers import read_log
    from clustertwin.workload.slurm.live.site_queue import parse_site_queue, read_site_queue
    from clustertwin.workload.slurm.live.site_start import SiteFuture, clock_of, forecast_site
    from clustertwin.workload.slurm.site.site_directory import read_site

    assert options.site is not None
    site = read_site(options.site)
    queue = read_site_queue() if options.squeue is None else parse_site_queue(read_text(options.squeue))
    past = read_log(options.past) if options.past else None
    known = _known(options, [live.name for live in queue.running])
    now_s = clock_of(past, asked_s)
    future = SiteFuture(FutureSettings(futures=options.futures), options.hours, now_s, options.seed, known)
    with err.status(SIMULATING_SITE):
        starts = forecast_site(site, queue, past, question, future)
    notes = (*site.report.lines("not modelled", "unknown", "assumed"), *starts.notes)
    running = {live.name: live.elapsed_s for live in queue.running}
    return Starts(starts.answers, running, queue.held, asked_s, notes)


def _known(options: StartOptions, running: Sequence[str]) -> KnownHealth:
    """The jobs of --hangs. A job that does not run any more is left out: the service named it some seconds ago."""
    known = {}
    for text in options.hangs:
        job, _, sure = text.partition("=")
        try:
            known[job] = JobHealth(job, hangs=True, sure=float(sure or 1.0))
        except ValueError:
            raise SettingsError(f"--hangs takes JOB or JOB=SURE, such as 4711=0.9, not {text!r}") from None
        if not job or not 0 <= known[job].sure <= 1:
            raise SettingsError(f"--hangs takes JOB or JOB=SURE with SURE from 0 to 1, not {text!r}")
        if job not in running:
            del known[job]
            err.print(f"job {job} does not run: --hangs {text} changes nothing", highlight=False)
    if known and options.past is None:
        raise SettingsError("--hangs needs --past: without a past all jobs run to their limits already")
    return known


def run_replay(options: StartOptions) -> dict[str, Any]:
    """How good forecasts are on the second half of a log, with intervals calibrated on the first."""
    if options.replay is None or options.job or options.like or options.squeue:
        raise SettingsError("--replay takes a log, and neither --job, --like nor --squeue")
    jobs = read(options.replay)
    procs = options.procs or stated_machine_size(jobs, options.unit)
    settings = FutureSettings(futures=options.futures)
    score, scale = judge_forecasts(jobs, procs, options.asked, settings, options.seed)
    return {
        "log": str(options.replay),
        "procs": procs,
        "low_level": 0.1,
        "high_level": 0.9,
        "early_scale": scale.early,
        "late_scale": scale.late,
        **asdict(score),
    }


def as_document(starts: Starts) -> dict[str, Any]:
    """The JSON document of `start`."""
    return {
        "asked_s": starts.asked_s,
        "running": len(starts.running),
        "held": starts.held,
        "starts": [asdict(answer) for answer in starts.answers],
        "running_jobs": [{"job": job, "elapsed_s": elapsed_s} for job, elapsed_s in starts.running.items()],
        "not_used": list(starts.notes),
    }


def print_starts(starts: Starts) -> None:
    """The start of each job as a table, from now."""
    if not starts.answers:
        err.print("no job waits")
        return
    within_h = starts.answers[0].within_s / 3600
    futures = starts.answers[0].futures
    print_table(
        f"time until the start, {futures} future{'s' if futures > 1 else ''}",
        ["job", "user", "10 %", "50 %", "90 %", "likeliest", "by limits", f"within {within_h:g} h", "run time from"],
        [
            [a.job, a.user, *map(duration, (a.p10_s, a.p50_s, a.p90_s, a.likeliest_s, a.by_limits_s)),
             f"{a.within_probability:.0%}", a.basis]
            for a in starts.answers
        ],
        whole=["job"],
    )  # fmt: skip
    for note in starts.notes:
        err.print(note, highlight=False)
