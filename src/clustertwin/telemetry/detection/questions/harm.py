"""Is a job harmed? Signals -> rules with absolute limits, which need no training and hold for any program.

A rule whose channel is unknown is silent. Each limit is a share of time that no healthy program loses for minutes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.questions.candidate import Candidate, only_if
from clustertwin.telemetry.detection.questions.job_parts import JobParts, S, Signals
from clustertwin.telemetry.detection.questions.question_settings import QuestionSettings
from clustertwin.telemetry.detection.questions.usual import Usual
from clustertwin.telemetry.moments.moment import Moment

MISBOUND_THREADS = 3  # a job of two threads of which one is idle may be a serial program
_ALMOST = 0.05
_QUARTERS = 4
_LEAST_QUARTER = 0.12  # of the growth; memory that grows in steps is not steady


def harm_candidates(
    moment: Moment, parts: JobParts, signals: Signals, own_past: Usual, settings: QuestionSettings
) -> list[Candidate]:
    """`signals` are means over 100 s."""
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
        _misbound(moment, parts, signals, own_past, settings),
        _leak(moment, parts, settings),
    ]


def _stalled_io(signals: Signals, settings: QuestionSettings) -> Candidate:
    """The threads wait for I/O, and little is transferred. Where traffic is unknown, they must do little else."""
    iowait, traffic = signals[:, S["iowait"]], signals[:, S["traffic"]]
    blind = np.isnan(traffic)
    limit = np.where(blind, settings.most_iowait_blind, settings.most_iowait)
    ratio = only_if(blind | (traffic < settings.least_traffic), iowait / limit)
    return Candidate("harm", "stalled-io", "iowait", ratio, iowait, limit)


def _misbound(
    moment: Moment, parts: JobParts, signals: Signals, own_past: Usual, settings: QuestionSettings
) -> Candidate:
    """One thread works and all others were never used, although there are tasks that wait for it."""
    idle, waiting = signals[:, S["idle"]], signals[:, S["waiting"]]
    unused = (parts.count - 1) / np.maximum(parts.count, 1) - _ALMOST
    queued = np.isnan(waiting) | (waiting * parts.count >= 0.5)
    likely = (idle > unused) & (own_past.lowest[:, S["idle"]] > unused) & queued
    likely &= parts.age_s >= moment.values.shape[1]
    likely &= (signals[:, S["busiest"]] > settings.idle_above) & (parts.count >= MISBOUND_THREADS)
    ratio = np.zeros(len(parts))
    for part in np.flatnonzero(likely).tolist():
        if parts.jobs[part] and _one_used(moment, parts.threads(part)):
            ratio[part] = 2
    return Candidate("harm", "misbound", "idle", ratio, idle, np.full(len(parts), np.nan))


def _one_used(moment: Moment, threads: NDArray[np.intp]) -> bool:
    """Whether one and the same thread did all the work of the last minutes: the kernel moves a task that may move."""
    idle = moment.values[threads][..., moment.schema.index("other")]
    seconds = moment.valid[threads].sum(1)
    used = (moment.valid[threads].sum(1) - idle.sum(1)) > _ALMOST * seconds
    return int(used.sum()) == 1


def _leak(moment: Moment, parts: JobParts, settings: QuestionSettings) -> Candidate:
    """The node's memory fills steadily and will be used up soon."""
    growth, left_s, used = _memory_growth(moment, settings)
    due = (left_s < settings.leak_horizon_s)[parts.node] & (parts.age_s >= settings.start_s + settings.leak_s)
    ratio = only_if(due, growth[parts.node] / settings.leak_growth)
    return Candidate("harm", "leak", "memory_used", ratio, used[parts.node], np.full(len(parts), np.nan))


def _memory_growth(
    moment: Moment, settings: QuestionSettings
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """(node,) steady growth over `leak_s`, 0 if it is not steady; seconds until all memory is used; memory in use."""
    unknown = np.full(len(moment.nodes), np.nan)
    channels = moment.node_channels
    if channels is None or "memory_used" not in channels.schema.names:
        return unknown, unknown, unknown
    used = channels.values[:, -settings.leak_s :, channels.schema.names.index("memory_used")].astype(np.float64)
    pieces = np.array_split(used, _QUARTERS + 1, axis=1)
    with np.errstate(invalid="ignore"):
        level = np.stack([piece.mean(1) for piece in pieces], axis=1)  # (node, piece); NaN if a second is unknown
    steps = np.diff(level, axis=1)
    growth = (level[:, -1] - level[:, 0]) * (_QUARTERS + 1) / _QUARTERS
    steady = (steps > _LEAST_QUARTER * growth[:, None]).all(1) & (growth > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        left_s = np.where(growth > 0, (1 - level[:, -1]) / growth * settings.leak_s, np.inf)
    return np.where(steady | np.isnan(growth), growth, 0.0), left_s, level[:, -1]
