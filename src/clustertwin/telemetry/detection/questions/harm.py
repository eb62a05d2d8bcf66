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
        above("throttled", "throttled", settings.most_throttled),
        above("steal", "steal", settings.most_steal),
        above("cpu-contention", "others", settings.most_others),
        above("memory-pressure", "memory_pressure", settings.most_memory_pressure),
        above("swapping", "swap_traffic", settings.most_swap),
        Candidate("harm", "out-of-memory", "oom_kills", np.where(oom > 0, 2.0, 0.0), oom, unknown),
        _stalled_io(signals, settings),
        _misbound(parts, signals, on_one, settings),
    ]


def _stalled_io(signals: Signals, settings: QuestionSettings) -> Candidate:
    """The threads wait for I/O, and little is transferred. Where traffic is unknown, they must do little else."""
    iowait, traffic = signals[:, S["iowait"]], signals[:, S["traffic"]]
    blind = np.isnan(traffic)
    limit = np.where(blind, settings.most_iowait_blind, settings.most_iowait)
    ratio = only_if(blind | (traffic < settings.least_traffic), iowait / limit)
    return Candidate("harm", "stalled-io", "iowait", ratio, iowait, limit)


def _misbound(parts: JobParts, signals: Signals, on_one: NDArray[np.bool_], settings: QuestionSettings) -> Candidate:
    """One thread works and the others were never used, although tasks wait for a CPU (where that is known)."""
    idle, waiting = signals[:, S["idle"]], signals[:, S["waiting"]]
    unused = (parts.count - 1) / np.maximum(parts.count, 1) - _ALMOST
    queued = np.isnan(waiting) | (waiting * parts.count >= 0.5)
    busy = signals[:, S["busiest"]] > settings.idle_above
    ratio = np.where(on_one & (idle > unused) & queued & busy, 2.0, 0.0)
    return Candidate("harm", "misbound", "idle", ratio, idle, np.full(len(parts), np.nan))


def one_used(moment: Moment, threads: NDArray[np.intp]) -> bool:
    """Whether one and the same thread did all the work of the moment: the kernel moves a task that may move."""
    if len(threads) < MISBOUND_THREADS:
        return False
    idle = moment.values[threads][..., moment.schema.index("other")]
    seconds = moment.valid[threads].sum(1)
    return int((seconds - idle.sum(1) > _ALMOST * seconds).sum()) == 1
