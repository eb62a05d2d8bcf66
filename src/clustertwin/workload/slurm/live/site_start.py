"""When jobs start on a site: the live queue, slurm.conf, a sacct log and a question -> 10, 50 and 90 % starts.

    starts = forecast_site(read_site(path), parse_site_queue(text), read_log(past), StartQuestion(job="4711"))

Running jobs hold their own nodes, and waiting jobs have Slurm's own priorities, which then grow with age only: what the
queue's fair shares will be is not known. Every future is scheduled as slurmctld would.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.durations import WEEK_S
from clustertwin.core.errors import SettingsError
from clustertwin.core.interval_scale import DEFAULT_SCALE
from clustertwin.core.job_health import KnownHealth, chance_of_hanging
from clustertwin.core.start_forecast import StartAnswer
from clustertwin.workload.run_times.run_time_history import (
    KEPT,
    LEVELS,
    RunTimeHistory,
    new_history,
    recent_runs,
    remember,
)
from clustertwin.workload.simulator.forecast.live_start import (
    EXACT,
    LIKE,
    LikeJob,
    StartQuestion,
)
from clustertwin.workload.simulator.forecast.start_distribution import (
    FutureSettings,
    QueueMoment,
    StartDistribution,
    draw_run_times,
)
from clustertwin.workload.slurm.joblog.job_table import SlurmJob, SlurmLog
from clustertwin.workload.slurm.live.site_queue import LiveJob, SiteQueue
from clustertwin.workload.slurm.site.quantities import Gres
from clustertwin.workload.slurm.site.slurm_site import PriorityWeights, SlurmSite
from clustertwin.workload.slurm.site_simulation import SiteSchedule, simulate_site

Floats = NDArray[np.float64]
NEVER_S = 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class SiteFuture:
    """How futures of a site are drawn."""

    draws: FutureSettings = FutureSettings(futures=20)
    hours: float = 24.0  # for which new jobs are submitted; 0: none
    now_s: float | None = None  # by the clock of the past (`clock_of`): new jobs are those of the same hours of a week
    seed: int = 0
    known: KnownHealth = field(default_factory=dict)  # running jobs that hang run to their limits


@dataclass(frozen=True, slots=True)
class SiteStarts:
    """The answers, the first to start first, and what they leave out."""

    answers: tuple[StartAnswer, ...]
    notes: tuple[str, ...]


def forecast_site(
    site: SlurmSite, queue: SiteQueue, past: SlurmLog | None, question: StartQuestion, future: SiteFuture = SiteFuture()
) -> SiteStarts:
    """Answer a question about the jobs that wait now. Without a past, all jobs run to their limits in one future."""
    if question.like is not None:
        queue = with_like(site, queue, question.like)
    if question.job and question.job not in [live.name for live in queue.waiting]:
        raise SettingsError(f"job {question.job} does not wait in this queue, or it is held")
    live_site, moment, history = site_of_now(site), _moment(site, queue, past), _history(queue, past)
    by_limits = play_queue(live_site, queue, moment.limit_s - moment.elapsed_s)
    left_out = dict(zip((live.name for live in queue.jobs), by_limits.state, strict=True))
    if LIKE in left_out and left_out[LIKE] in ("refused", "rejected"):
        reason = next(iter(by_limits.reasons), "a limit on submissions")
        raise SettingsError(f"Slurm would refuse a job like this: {reason}")
    first = len(queue.running)
    limits_s = _starts(by_limits, first, len(queue.jobs))
    samples = limits_s[None]
    if past is not None:
        drawn = queue_futures(site, queue, past, future)
        samples = np.array([_starts(play_queue(live_site, queue, *each), first, len(queue.jobs)) for each in drawn])
    wanted = LIKE if question.like is not None else question.job
    answers = [
        _answer(
            live, StartDistribution(np.sort(samples[:, k]), float(limits_s[k])), question, (moment, history, first + k)
        )
        for k, live in enumerate(queue.waiting)
        if wanted in ("", live.name) and left_out[live.name] not in ("refused", "rejected")
    ]
    notes = [f"{count:,} jobs: {reason}" for reason, count in by_limits.reasons.most_common()]
    if per_cpu := _memory_per_cpu(site):
        notes.append(f"assumed: memory that squeue prints is per CPU in {', '.join(per_cpu)}, as the default there")
    if site.reservations:
        notes.append(f"not modelled: {len(site.reservations)} advance reservations")
    return SiteStarts(tuple(sorted(answers, key=lambda answer: answer.p50_s)), tuple(notes))


def clock_of(past: SlurmLog | None, unix_s: float | None) -> float | None:
    """A Unix time as the log of the past counts time: a log without a time zone counts local time as UTC."""
    if unix_s is None or past is None or not past.local:
        return unix_s
    return datetime.fromtimestamp(unix_s).replace(tzinfo=UTC).timestamp()


def queue_futures(
    site: SlurmSite, queue: SiteQueue, past: SlurmLog | None, future: SiteFuture
) -> Iterator[tuple[Floats, list[SlurmJob]]]:
    """Run times from now on of the queue's jobs, and new jobs; without a past, the limits and no new jobs."""
    moment = _moment(site, queue, past)
    if past is None:
        yield moment.limit_s - moment.elapsed_s, []
        return
    if future.known:
        names = [live.name for live in queue.running]
        moment = replace(moment, hangs=np.array(chance_of_hanging(names, future.known)))
    rng = np.random.default_rng(future.seed)
    for runs_s in draw_run_times(moment, _history(queue, past), future.draws, rng):
        yield runs_s, _arrivals(queue, past, future, rng)


def site_of_now(site: SlurmSite) -> SlurmSite:
    """The site with priorities that are given, and grow with age only. Its reservations count from another zero."""
    weights = site.priority
    age = weights.age if weights.multifactor else 0.0
    by_age = PriorityWeights(age=age, max_age_s=weights.max_age_s, calc_period_s=weights.calc_period_s)
    return replace(site, priority=by_age, reservations=())


def play_queue(site: SlurmSite, queue: SiteQueue, runs_s: Floats, arrivals: Sequence[SlurmJob] = ()) -> SiteSchedule:
    """Schedule the queue from now on. `runs_s` are the run times from now on, of running and of waiting jobs."""
    per_cpu = set(_memory_per_cpu(site))
    jobs: list[SlurmJob] = []
    for live, run_s in zip(queue.jobs, runs_s, strict=True):
        job = live.job
        if set(job.partitions) & per_cpu and job.memory_per_node_mb > 0:
            job = replace(job, memory_per_cpu_mb=job.memory_per_node_mb, memory_per_node_mb=float("nan"))
        left_s = max(job.limit_s - live.elapsed_s, 60.0)
        jobs.append(replace(job, id=len(jobs) + 1, run_s=max(float(run_s), 1.0), limit_s=left_s, nice=-live.priority))
    log = SlurmLog((*jobs, *(replace(job, id=len(jobs) + 1 + k) for k, job in enumerate(arrivals))))
    return simulate_site(site, log, placed=[live.nodes for live in queue.running])


def _memory_per_cpu(site: SlurmSite) -> list[str]:
    """Partitions whose default memory is per CPU. squeue does not tell it from memory per node."""
    return [p.name for p in site.partitions if site.memory_counts and (p.memory_per_cpu_mb or site.memory_per_cpu_mb)]


def with_like(site: SlurmSite, queue: SiteQueue, like: LikeJob) -> SiteQueue:
    """The queue with one more job: whole nodes, or CPUs, and GPUs on each node."""
    gpu_nodes = {
        name for group in site.groups for name in group.names
        if any(gres.name == "gpu" and like.gpu_type in ("", gres.type) for gres in group.gres)
    }  # fmt: skip
    if like.gpus and not gpu_nodes:
        kind = f"GPUs of type {like.gpu_type}" if like.gpu_type else "GPUs"
        raise SettingsError(f"--like asks for GPUs, and no node of {site.name or 'this site'} has {kind}")
    names = [partition.name for partition in site.partitions]
    if like.partition and like.partition not in names:
        raise SettingsError(f"--like: there is no partition {like.partition}; there are {', '.join(names)}")
    partition = like.partition or site.default_partition
    if like.gpus and not like.partition and not gpu_nodes & set(site.partitions[names.index(partition)].nodes):
        partition = next((p.name for p in site.partitions if gpu_nodes & set(p.nodes)), partition)
    nodes = like.size if like.unit == "nodes" else 1 if like.gpus else 0
    job = SlurmJob(
        0, 0.0, float("inf"), like.user, like.account, (partition,), like.qos, like.limit_s, nodes_min=nodes,
        nodes_max=nodes, tasks=like.size, gres=(Gres("gpu", like.gpu_type, like.gpus),) if like.gpus else (),
        exclusive=like.unit == "nodes",
    )  # fmt: skip
    return replace(queue, waiting=(*queue.waiting, LiveJob(LIKE, job, _new_priority(queue, job), 0.0, ())))


def _new_priority(queue: SiteQueue, job: SlurmJob) -> int:
    """A new job enters behind those of its partition and QOS, or of its partition, or of the queue."""
    for alike in (
        lambda other: other.partitions == job.partitions and other.qos == job.qos,
        lambda other: other.partitions == job.partitions,
        lambda other: True,
    ):
        found = [live.priority for live in queue.waiting if alike(live.job)]
        if found:
            return min(found)
    return 1


def _moment(site: SlurmSite, queue: SiteQueue, past: SlurmLog | None) -> QueueMoment:
    jobs = queue.jobs
    return QueueMoment(
        site.cpus, np.array([max(live.job.tasks, 1) for live in jobs], np.int64),
        np.array([live.job.limit_s for live in jobs]), np.array([live.elapsed_s for live in jobs]),
        (len(past) if past else 0) + np.arange(len(jobs)), len(queue.running),
    )  # fmt: skip


def _history(queue: SiteQueue, past: SlurmLog | None) -> RunTimeHistory:
    """Recent run times of the past; the rows of the queue's jobs follow those of the past."""
    jobs = [*(past.jobs if past else ()), *(live.job for live in queue.jobs)]
    codes = {name: code for code, name in enumerate(dict.fromkeys(job.user for job in jobs))}
    limits_s = np.nan_to_num([job.limit_s for job in jobs], nan=0.0, posinf=NEVER_S)
    sizes = np.array([max(job.tasks, 1) * job.cpus_per_task for job in jobs])
    history = new_history(np.array([codes[job.user] for job in jobs], np.int64), limits_s, sizes)
    ended = [(job.end_s, row) for row, job in enumerate(past.jobs if past else ()) if np.isfinite(job.run_s)]
    for _, row in sorted(ended):
        if limits_s[row] > 0:
            remember(tuple(history), row, float(jobs[row].run_s), float(limits_s[row]))
    return history


def _arrivals(queue: SiteQueue, past: SlurmLog, future: SiteFuture, rng: np.random.Generator) -> list[SlurmJob]:
    """Submissions of some hours of the past: of the same hours of an earlier week where the clock is known."""
    last_s = past.jobs[-1].submit_s if past.jobs else 0.0
    length_s = future.hours * 3600.0
    if length_s <= 0 or last_s < length_s:
        return []
    from_s = float(rng.uniform(0.0, last_s - length_s))
    if future.now_s is not None:
        weekly = (future.now_s - past.epoch_s) % WEEK_S + WEEK_S * np.arange(int(last_s // WEEK_S) + 1)
        weekly = weekly[weekly + length_s <= last_s]
        from_s = float(rng.choice(weekly)) if len(weekly) else from_s
    drawn = [job for job in past.jobs if from_s < job.submit_s <= from_s + length_s and np.isfinite(job.run_s)]
    return [
        replace(
            job, submit_s=job.submit_s - from_s, begin_s=job.begin_s - from_s, cancel_s=job.cancel_s - from_s,
            dependency="", reservation="", nice=-_new_priority(queue, job),
        )
        for job in drawn
    ]  # fmt: skip


def _starts(schedule: SiteSchedule, first: int, last: int) -> Floats:
    return np.nan_to_num(schedule.start_s[first:last], nan=NEVER_S)


def _answer(
    live: LiveJob, starts: StartDistribution, question: StartQuestion, known: tuple[QueueMoment, RunTimeHistory, int]
) -> StartAnswer:
    moment, history, row = known
    count, level = recent_runs(
        tuple(history), int(moment.history_row[row]), float(moment.limit_s[row]), 0.0, FutureSettings().least,
        np.zeros(KEPT),
    )  # fmt: skip
    low_s, high_s = starts.interval_s(DEFAULT_SCALE if len(starts.samples_s) > 1 else EXACT)
    return StartAnswer(
        live.name, live.job.user, low_s, starts.quantile_s(0.5), high_s,
        starts.likeliest_s(), starts.by_limits_s, question.within_s, starts.probability(question.within_s),
        len(starts.samples_s), LEVELS[level] if count else "its limit",
    )  # fmt: skip
