"""Start times for people: the live queue, a log of the past and a question -> 10, 50 and 90 % starts of each job.

    answers = forecast_queue(queue, LivePast(past, submissions), 1024, StartQuestion(like=parse_like("4 nodes, 2 h")))

The service and `twin sched start` call this. Without a past there is one future, in which all jobs run to their limits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.core.interval_scale import DEFAULT_SCALE, IntervalScale
from clustertwin.core.job_health import KnownHealth, chance_of_hanging
from clustertwin.core.start_forecast import StartAnswer
from clustertwin.workload.formats.parsing.slurm_fields import parse_duration
from clustertwin.workload.jobs import COLUMNS, Jobs
from clustertwin.workload.machine_size import Unit, job_sizes
from clustertwin.workload.run_times.run_time_history import (
    KEPT,
    LEVELS,
    RunTimeHistory,
    new_history,
    recent_runs,
    remember,
)
from clustertwin.workload.simulator.admission import admit
from clustertwin.workload.simulator.forecast.squeue import LONGEST_S, LiveQueue
from clustertwin.workload.simulator.forecast.start_distribution import (
    Arrivals,
    FutureSettings,
    QueueMoment,
    StartDistribution,
    forecast_starts,
    start_samples,
)
from clustertwin.workload.simulator.forecast.start_times import FutureSubmissions

LIKE = "like"  # the name of a job that is only asked about
#: One future by limits is no distribution.
EXACT = IntervalScale(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class LikeJob:
    """A job that somebody might submit now."""

    size: int
    limit_s: float
    user: str = ""
    unit: Unit = "nodes"
    gpus: int = 0  # on each node
    gpu_type: str = ""  # empty: any
    partition: str = ""  # empty: the default
    qos: str = ""
    account: str = ""


@dataclass(frozen=True, slots=True)
class StartQuestion:
    """Which jobs, and the time that somebody has."""

    job: str = ""  # empty: all that wait
    like: LikeJob | None = None
    within_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class LivePast:
    """A log of this machine, where new submissions come from, and how much intervals are widened."""

    jobs: Jobs
    submissions: FutureSubmissions | None = None
    scale: IntervalScale = DEFAULT_SCALE


def parse_like(text: str) -> LikeJob:
    """A description such as `4 nodes, 2 h, 2 gpus, user ada`; GPUs are counted on each node.

    >>> like = parse_like("4 nodes, 2 h, gpu:v100:2")
    >>> like.size, like.unit, like.limit_s, like.gpus, like.gpu_type
    (4, 'nodes', 7200.0, 2, 'v100')
    """
    size, unit, limit_s, gpus, gpu_type = 0, "", 0.0, 0, ""
    names: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        count = re.fullmatch(r"(\d{1,9})\s*(nodes?|cpus?|cores?|procs?|processors?)", part, re.I)
        span = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)", part, re.I)
        if count:
            size, unit = int(count[1]), "nodes" if count[2].lower().startswith("n") else "cpus"
        elif span:
            limit_s = float(span[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[span[2][0].lower()]
        elif re.fullmatch(r"[\d:-]+:[\d:]+", part):
            limit_s = parse_duration(part)
        elif named := re.fullmatch(r"(user|partition|qos|account)\s+(\S+)", part, re.I):
            names[named[1].lower()] = named[2]
        elif asked := re.fullmatch(r"(\d{1,4})?\s*gpus?|gpu:([\w.-]*[a-z_][\w.-]*)(?::(\d{1,4}))?", part, re.I):
            gpus, gpu_type = int(asked[1] or asked[3] or 1), (asked[2] or "").lower()
        else:
            raise SettingsError(f"--like does not understand {part!r}; write for example '4 nodes, 2 h, user ada'")
    if size < 1 or not 0 < limit_s <= LONGEST_S:
        raise SettingsError(f"--like needs a size and a time limit, for example '4 nodes, 2 h', not {text!r}")
    return LikeJob(
        size, limit_s, unit="nodes" if unit == "nodes" else "cpus", gpus=gpus, gpu_type=gpu_type, **names
    )  # fmt: skip


def forecast_queue(
    queue: LiveQueue,
    past: LivePast | None,
    procs: int,
    question: StartQuestion,
    *,
    unit: Unit = "cpus",
    settings: FutureSettings = FutureSettings(),
    known: KnownHealth | None = None,
    seed: int = 0,
) -> list[StartAnswer]:
    """Answer a question about the jobs that wait now, the first to start first. Jobs that hang run to their limit."""
    if question.like is not None:
        queue = _with_like(queue, question.like, unit)
    if question.job and question.job not in queue.names[queue.running :]:
        raise SettingsError(f"job {question.job} does not wait in this queue, or it is held")
    history = _history(queue, past, unit)
    moment = _moment(queue, procs, unit, len(past.jobs) if past else 0)
    if known:
        moment = replace(moment, hangs=np.array(chance_of_hanging(queue.names[: queue.running], known)))
    rng = np.random.default_rng(seed)
    if past is None:
        limits_s = start_samples(moment, np.zeros((0, len(moment))), None, rng)[1]
        distributions = [StartDistribution(np.array([start_s]), float(start_s)) for start_s in limits_s]
    else:
        arrivals = _arrivals(past.submissions, procs, unit) if past.submissions else None
        distributions = forecast_starts(moment, history, arrivals, settings, rng)
    names = queue.names[queue.running :]
    wanted = LIKE if question.like is not None else question.job
    answers = [
        _answer(k, queue, moment, history, distributions[k], past.scale if past else EXACT, question)
        for k, name in enumerate(names)
        if wanted in ("", name)
    ]
    return sorted(answers, key=lambda answer: answer.p50_s)


def _answer(
    k: int,
    queue: LiveQueue,
    moment: QueueMoment,
    history: RunTimeHistory,
    starts: StartDistribution,
    scale: IntervalScale,
    question: StartQuestion,
) -> StartAnswer:
    """The answer about the waiting job `k`."""
    low_s, high_s = starts.interval_s(scale)
    row = queue.running + k
    count, level = recent_runs(
        tuple(history), int(moment.history_row[row]), float(moment.limit_s[row]), 0.0, FutureSettings().least,
        np.zeros(KEPT),
    )  # fmt: skip
    return StartAnswer(
        queue.names[row], queue.jobs.names["user"][int(queue.jobs.user[row])], low_s, starts.quantile_s(0.5),
        high_s, starts.likeliest_s(), starts.by_limits_s, question.within_s,
        starts.probability(question.within_s), len(starts.samples_s), LEVELS[level] if count else "its limit",
    )  # fmt: skip


def _with_like(queue: LiveQueue, like: LikeJob, unit: Unit) -> LiveQueue:
    """The queue with one more job at its end."""
    if like.gpus or like.partition or like.qos or like.account:
        raise SettingsError(
            "--like asks for GPUs, a partition, a QOS or an account, and a machine of CPUs or nodes has none; "
            "set --site to the directory of slurm.conf"
        )
    if like.unit != unit:
        raise SettingsError(f"--like counts {like.unit}, and the machine is counted in {unit}; set --unit {like.unit}")
    users = list(queue.jobs.names["user"])
    if like.user not in users:
        users.append(like.user)
    new: dict[str, Any] = {
        "id": int(queue.jobs.id.max(initial=0)) + 1, "submit_s": 0.0, "run_s": like.limit_s, "request_s": like.limit_s,
        "cpus": like.size, "nodes": like.size, "user": users.index(like.user),
    }  # fmt: skip
    columns: dict[str, Any] = {name: np.append(getattr(queue.jobs, name), new.get(name, -1)) for name in COLUMNS}
    for name in COLUMNS:
        columns[name] = columns[name].astype(getattr(queue.jobs, name).dtype)
    jobs = replace(queue.jobs, **columns, names={"user": tuple(users)})
    return LiveQueue(jobs, (*queue.names, LIKE), np.append(queue.elapsed_s, 0.0), queue.running, queue.held)


def _history(queue: LiveQueue, past: LivePast | None, unit: Unit) -> RunTimeHistory:
    """Recent run times of the past; the rows of the queue's jobs follow those of the past."""
    jobs = past.jobs if past else queue.jobs.take(slice(0, 0))
    codes = {name: code for code, name in enumerate(queue.jobs.names["user"])}
    names = jobs.names.get("user", ())
    far = len(codes)
    users = [codes.get(names[code], far + code) if 0 <= code < len(names) else far + max(code, 0) for code in jobs.user]
    history = new_history(
        np.concatenate([np.array(users, np.int64), queue.jobs.user]),
        np.concatenate([jobs.request_s, queue.limit_s]),
        np.concatenate([job_sizes(jobs, unit), job_sizes(queue.jobs, unit)]),
    )
    if past:
        known = np.flatnonzero((jobs.run_s >= 0) & (jobs.request_s > 0))
        table, end_s = tuple(history), jobs.submit_s + np.maximum(jobs.wait_s, 0.0) + jobs.run_s
        for row in known[np.argsort(end_s[known], kind="stable")]:
            remember(table, int(row), float(jobs.run_s[row]), float(jobs.request_s[row]))
    return history


def _moment(queue: LiveQueue, procs: int, unit: Unit, before: int) -> QueueMoment:
    size = job_sizes(queue.jobs, unit)
    if (size > procs).any():
        name = queue.names[int((size > procs).argmax())]
        raise SettingsError(f"job {name} needs {int(size.max()):,} {unit}, and the machine has {procs:,}")
    rows = before + np.arange(len(queue.jobs))
    return QueueMoment(procs, size, queue.limit_s, queue.elapsed_s, rows, queue.running)


def _arrivals(submissions: FutureSubmissions, procs: int, unit: Unit) -> Arrivals:
    return lambda rng: admit(submissions(rng), procs, unit=unit, kill_at_limit=True).records
