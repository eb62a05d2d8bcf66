"""Is a job harmed? Signals -> rules with absolute limits, which need no training and hold for any program.

A rule whose channel is unknown is silent. Each limit is a share of time that no healthy program loses for minutes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.questions.candidate import Candidate, only_if
from clustertwin.telemetry.detection.questions.job_parts import JobParts, S, Signals
from clustertwin.telemetry.detection.questions.question_settings import QuestionSettings
from clustertwin.telemetry.moments.moment import Moment

MISBOUND_THREADS = 3  # a job of two threads of which one is idle may be a serial program
_ALMOST = 0.05
_WAITS_FOR_MEMORY = 0.02  # of the time
_STOPPED = 0.1  # threads that a quota stops: less is the remainder of a period
_ALWAYS, _NO_WORK = 0.8, 0.1  # of the time a task waits for I/O, while fewer threads than this work
_TAKEN = 0.25  # threads that other work takes, or a quota: they explain tasks that wait
_READER = 1.0  # the task that reads the run queue runs at that time, so it is always among the tasks
_READS_BACK = 0.1  # of the channel of major page faults: 11 a second


def harm_candidates(
    parts: JobParts, signals: Signals, on_one: NDArray[np.bool_], settings: QuestionSettings
) -> list[Candidate]:
    """`signals` are means over 100 s; `on_one` tells the parts that used one of their threads since they started."""
    unknown = np.full(len(parts), np.nan)

    def above(cause: str, name: str, limit: float) -> Candidate:
        value = signals[:, S[name]]
        return Candidate("harm", cause, name, value / limit, value, np.full(len(parts), limit))

    oom = signals[:, S["oom_kills"]]
    return [
        _throttled(parts, signals, settings),
        above("steal", "steal", settings.most_steal),
        _contention(signals, settings),
        _one_thread_taken(parts, signals, settings),
        above("memory-pressure", "memory_pressure", settings.most_memory_pressure),
        _swapping(signals, settings),
        Candidate("harm", "out-of-memory", "oom_kills", np.where(oom > 0, 2.0, 0.0), oom, unknown),
        _stalled_io(signals, settings),
        _waits_only(parts, signals, settings),
        _misbound(parts, signals, on_one, settings),
    ]


def _throttled(parts: JobParts, signals: Signals, settings: QuestionSettings) -> Candidate:
    """A quota stops the job: as a part of its threads' time, or of the time that its tasks want, if those are fewer."""
    stopped = signals[:, S["throttled"]]
    wanted = stopped + signals[:, S["user"]] + signals[:, S["system"]]
    share = np.where(stopped * parts.count > _STOPPED, stopped / np.maximum(wanted, 1e-6), 0)
    value = np.fmax(stopped, share)
    limit = np.full(len(parts), settings.most_throttled)
    return Candidate("harm", "throttled", "throttled", value / limit, value, limit)


def _contention(signals: Signals, settings: QuestionSettings) -> Candidate:
    """Other work takes the job's threads while its tasks wait. Without their pressure the job may have left them free.

    Where only an upper bound of that pressure is known (cgroup v1), a change of other work is judged, and its level
    is not.
    """
    others = signals[:, S["others"]]
    ratio = only_if(~np.isnan(signals[:, S["queued"]]), others / settings.most_others)
    return Candidate("harm", "cpu-contention", "others", ratio, others, np.full(len(others), settings.most_others))


def _one_thread_taken(parts: JobParts, signals: Signals, settings: QuestionSettings) -> Candidate:
    """Other work takes much of one thread, and a task of the job waits as long. All ranks wait for that one."""
    others = signals[:, S["others"]]
    ratio = np.minimum(others * parts.count, signals[:, S["queued"]]) / settings.most_of_one
    return Candidate("harm", "cpu-contention", "others", ratio, others, settings.most_of_one / parts.count)


def _swapping(signals: Signals, settings: QuestionSettings) -> Candidate:
    """The node swaps, and this job waits for memory. Other jobs of the node may be untouched.

    Many kernels do not count waits for memory. There, a job that has no major page fault reads nothing back.
    """
    swap, waits, faults = (signals[:, S[name]] for name in ("swap_traffic", "memory_pressure", "major_faults"))
    touched = np.where(np.isnan(waits), ~(faults < _READS_BACK), waits > _WAITS_FOR_MEMORY)
    ratio = only_if(touched, swap / settings.most_swap)
    return Candidate("harm", "swapping", "swap_traffic", ratio, swap, np.full(len(swap), settings.most_swap))


def _stalled_io(signals: Signals, settings: QuestionSettings) -> Candidate:
    """The threads wait for I/O, and little is transferred. Where traffic is unknown, they must do little else."""
    iowait, traffic = signals[:, S["iowait"]], signals[:, S["traffic"]]
    blind = np.isnan(traffic)
    limit = np.where(blind, settings.most_iowait_blind, settings.most_iowait)
    ratio = only_if(blind | (traffic < settings.least_traffic), iowait / limit)
    return Candidate("harm", "stalled-io", "iowait", ratio, iowait, limit)


def _waits_only(parts: JobParts, signals: Signals, settings: QuestionSettings) -> Candidate:
    """A job of few tasks on many threads: one of them always waits for I/O, none works, and nothing is transferred."""
    waits, traffic = signals[:, S["io_pressure"]], signals[:, S["traffic"]]
    busy = parts.count * (signals[:, S["user"]] + signals[:, S["system"]])
    known = (parts.channel_row >= 0) & (traffic < settings.least_traffic)
    ratio = only_if(known & (busy < _NO_WORK), waits / _ALWAYS)
    return Candidate("harm", "stalled-io", "io_pressure", ratio, waits, np.full(len(parts), _ALWAYS))


def _misbound(parts: JobParts, signals: Signals, on_one: NDArray[np.bool_], settings: QuestionSettings) -> Candidate:
    """Tasks of the job wait for a CPU while one of its threads is free: they are not allowed to run there.

    Where nothing tells that its tasks wait, one thread must have done all the work since the start. If the tasks of the
    node are known, some must wait and no other job may run there, whose tasks they could be.
    """
    idle, busy = signals[:, S["idle"]], signals[:, S["busiest"]] > settings.idle_above
    node_threads = np.bincount(parts.node, parts.count)[parts.node]
    waiting, queued = signals[:, S["waiting"]] * node_threads, signals[:, S["queued"]]
    all_but_one = idle > (parts.count - 1) / np.maximum(parts.count, 1) - _ALMOST
    alone = np.bincount(parts.node, parts.job >= 0)[parts.node] <= 1
    tasks_wait = np.isnan(waiting) | alone & (waiting >= _READER + 0.5)
    from_start = np.isnan(queued) & on_one & all_but_one & tasks_wait
    ratio = np.where((from_start | is_confined(parts, signals, settings)) & busy, 2.0, 0.0)
    return Candidate("harm", "misbound", "idle", ratio, idle, np.full(len(parts), np.nan))


def is_confined(parts: JobParts, signals: Signals, settings: QuestionSettings) -> NDArray[np.bool_]:
    """(part,) whether tasks of the job wait for a CPU while one of its threads is free, and nothing else takes a CPU.

    A task waits `queued` of the time and the thread is free `unused` of it, so for what exceeds 1 both are true. Where
    the job's cgroup does not tell that its tasks wait (v1), the pressure of its node does if it holds the whole node.
    """
    node_threads, queued = np.bincount(parts.node, parts.count)[parts.node], signals[:, S["queued"]]
    waits = np.where(np.isnan(queued) & (parts.count == node_threads), signals[:, S["cpu_pressure"]], queued)
    taken = np.nan_to_num(np.fmax(signals[:, S["others"]], signals[:, S["throttled"]])) * parts.count
    return np.asarray((waits + signals[:, S["unused"]] - 1 > settings.least_queued) & (taken < _TAKEN))


def one_used(moment: Moment, threads: NDArray[np.intp]) -> bool:
    """Whether one and the same thread did all the work of the moment: the kernel moves a task that may move."""
    if len(threads) < MISBOUND_THREADS:
        return False
    idle = moment.values[threads][..., moment.schema.index("other")]
    seconds = moment.valid[threads].sum(1)
    return int((seconds - idle.sum(1) > _ALMOST * seconds).sum()) == 1
