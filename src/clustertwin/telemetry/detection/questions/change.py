"""Is a job unlike itself? Signals and what is usual -> rules for changes towards lost progress.

An effect must matter (a floor for each signal), exceed the job's own spread between blocks, and exceed the highest
level that was usual before. A change that only shows a new phase of useful work is information and opens no event.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.questions.candidate import Candidate, PerPart, only_if
from clustertwin.telemetry.detection.questions.growth_onset import BeforeGrowth, began_with_stage
from clustertwin.telemetry.detection.questions.harm import is_confined
from clustertwin.telemetry.detection.questions.job_parts import JobParts, S, Signals
from clustertwin.telemetry.detection.questions.no_progress import busy_threads, slackens, stands_still
from clustertwin.telemetry.detection.questions.own_past import AT_REST
from clustertwin.telemetry.detection.questions.question_settings import QuestionSettings
from clustertwin.telemetry.detection.questions.stages import (
    faults_more_than_ever,
    gave_memory_back,
    had_memory_before,
    transfers_more_than_ever,
)
from clustertwin.telemetry.detection.questions.usual import Usual

_OWN_TASKS = 0.02  # other work, or a quota, that takes less than this does not explain tasks that wait
_ONE_TASK = 0.1  # a task that computes keeps one thread busy, more or less by this much, …
_ALL_OF_IT = 0.7  # … and the busiest thread of each second does at least this much of it
_RESTING = 0.8  # of the time: a job that is idle for longer rests by design
_MORE_WORK = 0.02  # user time above what is usual: the program itself does more, and more time in the kernel follows
_WORKED = 0.3  # threads that a job keeps busy
_PHASE_SIGNALS = ("user", "system", "iowait", "idle")


@dataclass(frozen=True, slots=True)
class Compared:
    """What the parts are compared with."""

    usual: Usual  # of the program, of the job itself or of its user
    own: Usual  # of the job itself
    by_program: NDArray[np.bool_]  # (part,) whether the usual is that of the program
    new_rest: NDArray[np.bool_]  # (part,) whether a rest would be longer than the job's own past explains
    before_growth: BeforeGrowth  # of the job itself


def change_candidates(
    parts: JobParts, now: Signals, longer: Signals, compared: Compared, peers: PerPart, settings: QuestionSettings
) -> list[Candidate]:
    """`now` are means over `block_s`, `longer` over 100 s; `peers` is the surprise of the peers view over its bar."""
    usual, own = compared.usual, compared.own

    def value(name: str) -> PerPart:
        return now[:, S[name]]

    def centre(name: str) -> PerPart:
        return usual.centre[:, S[name]]

    def rise(name: str, floor: float | PerPart) -> PerPart:
        return excess_ratio(value(name), usual, name, floor, settings.spreads)

    def candidate(cause: str, name: str, ratio: PerPart) -> Candidate:
        return Candidate("change", cause, name, ratio, value(name), centre(name))

    def works_more(signals: Signals) -> NDArray[np.bool_]:
        return np.asarray(signals[:, S["user"]] > centre("user") + _MORE_WORK)

    waits = np.fmax(now, longer)[:, S["waiting"]] - centre("waiting")
    contention = np.minimum(rise("lost", settings.lost), waits / settings.waiting)
    own_tasks = value("others") < _OWN_TASKS
    throttled = value("throttled") >= _OWN_TASKS
    more_traffic = value("traffic") > centre("traffic") + settings.least_traffic
    # A program that reads that much more than before while its memory grows loads its input.
    loads = value("traffic") > centre("traffic") + settings.loading
    stopped = (longer[:, S["idle"]] > settings.idle_above) & (longer[:, S["busiest"]] < settings.busiest_below)
    # A job that always worked and stops altogether has stopped, however few of its threads it used.
    at_rest = np.where(stopped & _rests(parts, longer, usual, compared.new_rest), 1.0, 0.0)
    elsewhere = _on_other_nodes(parts, now)
    rests_here = (value("idle") > settings.idle_above) & (value("busiest") < settings.busiest_below)
    rests_here &= elsewhere > settings.still_busy
    # In a serial phase one thread is as busy as before. Where even the busiest one is not, the job makes less progress.
    slowed = (value("busiest") < centre("busiest") - settings.slowed) & ~_is_serial(parts, now, own)
    # Tasks wait for a CPU while another one is free: that explains why only one thread works.
    one_cpu = is_confined(parts, now, settings)
    # The other ranks wait, and waiting is busy. Page faults and traffic tell this from a serial phase.
    waits_for_rank = stands_still(now, usual, settings) & (busy_threads(parts, now) > settings.still_busy) & ~one_cpu
    # A job that waits for I/O by design must wait twice as much.
    stalls = np.nan_to_num(only_if(~more_traffic, rise("iowait", np.fmax(settings.iowait, centre("iowait")))))
    bursts = excess_ratio(longer[:, S["stalled"]], usual, "stalled", settings.bursts, settings.spreads)
    transferred_more = longer[:, S["traffic"]] > centre("traffic") + settings.least_traffic
    # How much memory a program takes, and for how long it loads, depends on its input: other runs do not tell.
    grows = np.minimum(_grows(now, usual, settings), _grows(now, own, settings))
    forks, forked = faults_more_than_ever(now, own), faults_more_than_ever(longer, own)
    # A rank that hangs keeps its memory. Where memory was given back and the rest works, a process is done.
    finished = gave_memory_back(now, own) & (parts.over_job(value("progress")) > settings.no_progress)
    done = parts.over_job(finished) > 0
    # A node at rest while the others work as before was left behind. Where they work less too, the job has less to do.
    left_behind = rests_here & (elsewhere > _on_other_nodes(parts, own.centre) / 2) & ~done
    other_stage = done | forks | transfers_more_than_ever(np.fmax(now, longer), usual, settings)
    # A thread that waits for I/O, or for a CPU that it shares, differs from the others for that reason.
    explained = one_cpu | (stalls >= 1)
    deviates = np.minimum(_deviates(longer, usual, settings), np.nan_to_num(peers, nan=np.inf))
    idles, kernel = rise("idle", settings.idle), rise("system", settings.kernel)
    rests = np.fmax(idles, at_rest)
    by_program, above_runs = compared.by_program, rise("idle", settings.unlike_program)
    serial = _is_serial(parts, longer, own)
    worked = centre("idle") < _RESTING  # in a job that rests by design, a thread that works is not a straggler
    return [
        candidate("cpu-contention", "lost", only_if(~own_tasks, contention)),
        candidate("cpu-contention", "others", rise("others", settings.others)),
        candidate("oversubscribed", "waiting", only_if(own_tasks, contention)),
        candidate("oversubscribed", "queued", only_if(own_tasks & ~throttled, rise("queued", settings.queued))),
        candidate("idle", "idle", only_if((stopped | slowed & ~done) & ~rests_here & ~more_traffic, rests)),
        candidate("stalled-io", "iowait", stalls),
        candidate("kernel-time", "system", only_if(~works_more(now) & ~more_traffic & ~forks, kernel)),
        candidate("stall-bursts", "stalled", only_if(~transferred_more & ~works_more(longer) & ~forked, bursts)),
        candidate("straggler", "apart", only_if(worked & ~serial & ~other_stage & ~explained, deviates)),
        candidate("one-thread-left", "idle", only_if(worked & serial & ~more_traffic & ~done & ~one_cpu, idles)),
        candidate("hung-rank", "idle", only_if(worked & (waits_for_rank | left_behind) & ~more_traffic, rests)),
        candidate(
            "leak",
            "memory_growth",
            only_if(~loads & ~had_memory_before(now, own) & ~began_with_stage(now, compared.before_growth), grows),
        ),
        # The serial phases of a known program are part of its usual, so more idle time than that is not one of them.
        candidate("unlike-program", "idle", only_if(by_program & ~more_traffic, above_runs)),
        candidate("unlike-itself", "user", _new_phase(now, usual, settings)),
    ]


def pending(
    parts: JobParts, now: Signals, longer: Signals, compared: Compared, settings: QuestionSettings
) -> NDArray[np.bool_]:
    """(part, signal) where a signal is beyond what is usual: such a block does not count as usual yet."""
    usual, own = compared.usual, compared.own
    out = np.zeros(now.shape, np.bool_)
    # Bursts come and go within a minute. They are one change, not a phase that came and went.
    stalled = np.fmax(now, longer)[:, S["stalled"]]
    out[:, S["stalled"]] = excess_ratio(stalled, usual, "stalled", settings.bursts, settings.spreads) >= 1
    for name, floor in (
        ("lost", settings.lost),
        ("others", settings.others),
        ("queued", settings.queued),
        ("idle", settings.idle),
        ("iowait", np.fmax(settings.iowait, usual.centre[:, S["iowait"]])),
        ("system", settings.kernel),
    ):
        out[:, S[name]] = excess_ratio(now[:, S[name]], usual, name, floor, settings.spreads) >= 1
    for name in ("apart", "closest"):
        out[:, S[name]] = _distance_ratio(longer, usual, name, settings) >= 1
    out[:, S["memory_growth"]] = _grows(now, own, settings) >= 1
    # Memory that leaks, and what a process left that is done, do not become usual meanwhile.
    out[:, S["memory"]] = out[:, S["memory_growth"]] | gave_memory_back(now, own)
    out[:, S["page_faults"]] = faults_more_than_ever(now, own)
    out[:, S["traffic"]] = out[:, S["apart"]] & transfers_more_than_ever(now, usual, settings)
    # Traffic that explains a change does not become usual before the change does.
    more_traffic = now[:, S["traffic"]] > usual.centre[:, S["traffic"]] + settings.least_traffic
    out[:, S["traffic"]] |= more_traffic & out[:, [S["idle"], S["iowait"], S["system"], S["stalled"]]].any(axis=1)
    out[:, S["progress"]] = slackens(now, usual, settings)
    out[:, S["waiting"]] = out[:, S["lost"]]
    out[:, S["idle"]] |= _rests(parts, now, usual, compared.new_rest)
    out[:, S["busiest"]] = out[:, S["user"]] = out[:, S["idle"]]
    return out


def excess_ratio(value: PerPart, usual: Usual, name: str, floor: float | PerPart, spreads: float) -> PerPart:
    """How far a value lies above what is usual, over the effect that is needed there."""
    i = S[name]
    centre, spread, highest = usual.centre[:, i], usual.spread[:, i], usual.highest[:, i]
    needed = np.maximum(np.maximum(floor, spreads * spread), highest - centre + floor / 2)
    return np.asarray((value - centre) / needed)


def _grows(now: Signals, usual: Usual, settings: QuestionSettings) -> PerPart:
    return excess_ratio(now[:, S["memory_growth"]], usual, "memory_growth", settings.leak, settings.spreads)


def _rests(parts: JobParts, signals: Signals, usual: Usual, new_rest: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(part,) whether the job does nothing, although it worked in every half minute before.

    A job that mostly works and rested before may rest again, but not for ever.
    """
    always, mostly = (
        (parts.count * work[:, S["user"]] > _WORKED) | (rest[:, S["idle"]] < _RESTING)
        for work, rest in ((usual.lowest, usual.highest), (usual.centre, usual.centre))
    )
    return np.asarray((always | mostly & new_rest) & (busy_threads(parts, signals) < AT_REST))


def _on_other_nodes(parts: JobParts, signals: Signals) -> PerPart:
    """(part,) how many threads its job keeps busy on its other nodes."""
    busy = np.nan_to_num(busy_threads(parts, signals))
    return parts.over_job(busy) - busy


def _deviates(longer: Signals, usual: Usual, settings: QuestionSettings) -> PerPart:
    """A thread differs from its job more than usual, all the time for a minute.

    Threads are apart for longer than usual, or further apart than usual when they are closest together.
    """
    steady = longer[:, S["closest"]] > longer[:, S["apart"]] / 2
    for_longer = only_if(steady, _distance_ratio(longer, usual, "apart", settings))
    return np.fmax(for_longer, _distance_ratio(longer, usual, "closest", settings))


def _distance_ratio(longer: Signals, usual: Usual, name: str, settings: QuestionSettings) -> PerPart:
    """How far the threads are apart beyond what is usual, over the step above the highest that is needed."""
    value, (centre, spread, _, highest) = longer[:, S[name]], (table[:, S[name]] for table in usual)
    floor = settings.apart + settings.apart_ratio * centre
    return np.asarray((value - centre) / np.maximum(settings.spreads * spread, highest - centre + floor))


def _is_serial(parts: JobParts, signals: Signals, own: Usual) -> NDArray[np.bool_]:
    """(part,) one task works and the others rest: a serial phase, not a thread that others wait for.

    A task that is not bound moves between the threads, so the time of all of them counts: they add up to one thread,
    and in each second one of them does it all. Or short processes do it one after the other.
    """
    busiest, n = signals[:, S["busiest"]], parts.count
    rest_idle = (n * signals[:, S["idle"]] - (1 - busiest)) / np.maximum(n - 1, 1)
    adds_up = (n > 1) & (abs(busy_threads(parts, signals) - 1) < _ONE_TASK)
    in_turn = (signals[:, S["leading"]] > _ALL_OF_IT) | faults_more_than_ever(signals, own)
    return np.asarray((busiest > 0.8) & (rest_idle > 0.8) | adds_up & in_turn)


def _new_phase(now: Signals, usual: Usual, settings: QuestionSettings) -> PerPart:
    """The largest change of any CPU channel, in either direction."""
    ratios = []
    for name in _PHASE_SIGNALS:
        i = S[name]
        above = excess_ratio(now[:, i], usual, name, settings.information, settings.spreads)
        needed = np.maximum(settings.information, settings.spreads * usual.spread[:, i])
        needed = np.maximum(needed, usual.centre[:, i] - usual.lowest[:, i] + settings.information / 2)
        ratios += [above, (usual.centre[:, i] - now[:, i]) / needed]
    return np.fmax.reduce(ratios)
