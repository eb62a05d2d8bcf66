"""Sessions -> jobs, compiled: a walk through the states of a user's profile, with pauses and run times.

A state is one kind of job in one profile. Run times and pauses are quantiles of tables; their normal scores follow
their predecessors in the session (a Gaussian copula of order one).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.compiled import compiled

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

HALVINGS = 12
OCCUPIED_HOURS = 14 * 24  # of a week, and of the jobs that run beyond it


class SessionTables(NamedTuple):
    """What the walk needs. Lists of unequal length lie one after another; `*_at` says where each begins."""

    state_kind: Ints  # (state,)
    state_row: Ints  # (state,) row of `run_log`
    state_mean: Floats32  # (state,) normal score of its run times in that row
    state_spread: Floats32
    state_offset: Floats32  # (state,) log of the limit where the row holds run times over limits, else 0
    next_at: Ints  # (state + 1,)
    next_state: Ints
    next_share: Floats32  # cumulative within a list
    entry_at: Ints  # (entry + 1,)
    entry_state: Ints  # first states of a session
    entry_share: Floats32
    entry_row: Ints  # (entry,) row of `gap_log`
    entry_mean: Floats32
    entry_spread: Floats32
    run_log: Floats32  # (row, quantile) of log(1 + run time), or of the time past the limit
    gap_log: Floats32  # (row, quantile) of log(1 + pause)
    memory: Floats32  # (2,) correlation with the predecessor: of run times, of pauses


class WorkTargets(NamedTuple):
    """The work that jobs are to have."""

    part: Ints  # (job,) of the week; sorted
    target: Floats  # (part,)
    furthest: float  # shift of run times, in normal scores


@compiled
def _normal_share(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


@compiled
def _quantile(row: Floats32, z: float) -> float:
    at = _normal_share(z) * (len(row) - 1)
    low = min(int(at), len(row) - 2)
    part = at - low
    return row[low] * (1.0 - part) + row[low + 1] * part


@compiled
def _pick(share: Floats32, begin: int, end: int, uniform: float) -> int:
    while begin < end - 1:
        middle = (begin + end - 1) // 2
        if share[middle] > uniform:
            end = middle + 1
        else:
            begin = middle + 1
    return begin


@compiled
def walk(
    tables: SessionTables, entry: Ints, length: Ints, uniform: Floats, normal: Floats
) -> tuple[Ints, Floats, Floats]:
    """(state, seconds since its session began, normal score of the run time) of every job, session after session."""
    total = length.sum()
    states = np.empty(total, dtype=np.int64)
    time_s = np.empty(total)
    score = np.empty(total)
    run_memory, gap_memory = tables.memory[0], tables.memory[1]
    run_news, gap_news = math.sqrt(1.0 - run_memory**2), math.sqrt(1.0 - gap_memory**2)
    k = 0
    for session in range(len(entry)):
        which = entry[session]
        gaps = tables.gap_log[tables.entry_row[which]]
        at = _pick(tables.entry_share, tables.entry_at[which], tables.entry_at[which + 1], uniform[k])
        state, now_s = tables.entry_state[at], 0.0
        z, pause = normal[k, 0], normal[k, 1]
        for step in range(length[session]):
            if step:
                at = _pick(tables.next_share, tables.next_at[state], tables.next_at[state + 1], uniform[k])
                following = tables.next_state[at]
                z = run_memory * z + run_news * normal[k, 0] if following == state else normal[k, 0]
                pause = gap_memory * pause + gap_news * normal[k, 1]
                place = tables.entry_mean[which] + tables.entry_spread[which] * pause
                now_s += math.expm1(_quantile(gaps, place))
                state = following
            states[k], time_s[k] = state, now_s
            score[k] = tables.state_mean[state] + tables.state_spread[state] * z
            k += 1
    return states, time_s, score


@compiled
def _run_time(tables: SessionTables, state: int, z: float, bounds: Floats) -> float:
    """`bounds`: lower and upper bound, and the limit if the run time counts from there (else 0)."""
    log = _quantile(tables.run_log[tables.state_row[state]], z) + tables.state_offset[state]
    return min(max(math.expm1(log), bounds[0]), bounds[1]) + bounds[2]


@compiled
def run_times(
    tables: SessionTables, states: Ints, score: Floats, bounds: Floats, size: Ints, aim: WorkTargets
) -> Floats:
    """(job,) run times. The jobs of one part are shifted together so that their work meets its target.

    A target of 0 leaves a part as drawn.
    """
    part, target, furthest = aim
    run_s = np.empty(len(states))
    begin = 0
    while begin < len(states):
        end = begin
        while end < len(states) and part[end] == part[begin]:
            end += 1
        low, high, shift = -furthest, furthest, 0.0
        if target[part[begin]] > 0:
            for _ in range(HALVINGS):
                work = 0.0
                for job in range(begin, end):
                    work += size[job] * _run_time(tables, states[job], score[job] + shift, bounds[job])
                if work > target[part[begin]]:
                    high = shift
                else:
                    low = shift
                shift = (low + high) / 2
        for job in range(begin, end):
            run_s[job] = _run_time(tables, states[job], score[job] + shift, bounds[job])
        begin = end
    return run_s


@compiled
def choose_slots(
    order: Ints, work: Floats, slot_work: Floats, slot_sessions: Floats, liking: Floats, uniform: Floats
) -> Ints:
    """(session,) a slot of the week for each session, so that sessions and work of each slot come close to its level.

    `order`: the sessions by falling work. `liking` (session, slot): how much the user favours each slot. Users wait for
    results, so the large batches of a busy site are spread over its week; independent times would pile them up.
    """
    slots = len(slot_work)
    left_work = slot_work / max(slot_work.sum(), 1e-9)
    left_sessions = slot_sessions / max(slot_sessions.sum(), 1e-9)
    total = max(work.sum(), 1e-9)
    chosen = np.empty(len(order), dtype=np.int64)
    weight = np.empty(slots)
    for i in range(len(order)):
        session = order[i]
        part = work[session] / total
        sum_of_weights = 0.0
        for slot in range(slots):
            if slot_sessions[slot] > 0:
                room = max(left_sessions[slot], 0.01) * liking[session, slot]
                weight[slot] = room * max(left_work[slot], 0.002) ** 4 if part > 0.001 else room
            else:
                weight[slot] = 0.0
            sum_of_weights += weight[slot]
        at = uniform[session] * sum_of_weights
        slot = 0
        while slot < slots - 1 and at >= weight[slot]:
            at -= weight[slot]
            slot += 1
        chosen[session] = slot
        left_work[slot] -= part
        left_sessions[slot] -= 1.0 / len(order)
    return chosen


class WalkedJobs(NamedTuple):
    """The jobs of sessions, session after session."""

    length: Ints  # (session,)
    after_s: Floats  # (job,) since the session began
    size: Ints  # (job,)
    run_s: Floats  # (job,)


@compiled
def _occupy(busy: Floats, begin_h: float, end_h: float, size: float) -> None:
    """Add a job to the occupied machines of each hour; a negative size removes it."""
    end_h = min(end_h, float(OCCUPIED_HOURS))
    hour = int(begin_h)
    while hour < end_h:
        busy[hour] += size * (min(end_h, hour + 1.0) - max(begin_h, float(hour)))
        hour += 1


@compiled
def _beyond(busy: Floats, begin_h: float, end_h: float, size: float, machine: float, whole_job: bool) -> float:
    """The work of a job, weighted by what is beyond the machine: at its submission, or in each hour of the job."""
    if not whole_job:
        hour = min(int(begin_h), OCCUPIED_HOURS - 1)
        return size * (end_h - begin_h) * max(busy[hour] - machine, 0.0)
    end_h = min(end_h, float(OCCUPIED_HOURS))
    total = 0.0
    hour = int(begin_h)
    while hour < end_h:
        total += size * (min(end_h, hour + 1.0) - max(begin_h, float(hour))) * max(busy[hour] - machine, 0.0)
        hour += 1
    return total


@compiled
def calm_starts(
    order: Ints, starts_s: Floats, jobs: WalkedJobs, machine: float, passes: int = 1, whole_job: bool = False
) -> Floats:
    """(session,) the start, of those that are offered, at which the least work is beyond what the machine can run.

    Users see the queue and submit when it is short. `order`: the sessions, those that choose first first; in a further
    pass each chooses again. `starts_s` (session, offer): seconds into the week; of equally calm starts the first is
    taken. Occupancy is counted by the hour, as if every job began when it is submitted.
    """
    first = np.cumsum(jobs.length) - jobs.length
    busy = np.zeros(OCCUPIED_HOURS)
    chosen = np.full(len(order), -1.0)
    for i in range(passes * len(order)):
        session = order[i % len(order)]
        own = range(first[session], first[session] + jobs.length[session])
        if chosen[session] >= 0:
            for job in own:
                begin_h = (chosen[session] + jobs.after_s[job]) / 3600.0
                _occupy(busy, begin_h, begin_h + jobs.run_s[job] / 3600.0, -float(jobs.size[job]))
        best, least = 0, np.inf
        for offer in range(starts_s.shape[1]):
            beyond = 0.0
            for job in own:
                begin_h = (starts_s[session, offer] + jobs.after_s[job]) / 3600.0
                end_h = begin_h + jobs.run_s[job] / 3600.0
                beyond += _beyond(busy, begin_h, end_h, float(jobs.size[job]), machine, whole_job)
            if beyond < least:
                best, least = offer, beyond
        chosen[session] = starts_s[session, best]
        for job in own:
            begin_h = (chosen[session] + jobs.after_s[job]) / 3600.0
            _occupy(busy, begin_h, begin_h + jobs.run_s[job] / 3600.0, float(jobs.size[job]))
    return chosen


@compiled
def separate(order: Ints, user: Ints, start_s: Floats, duration_s: Floats, pause_s: Floats) -> Floats:
    """(session,) starts such that a user's sessions do not overlap: a later one waits for the end, and for a pause.

    `order`: the sessions by user and start.
    """
    moved_s = start_s.copy()
    for i in range(1, len(order)):
        before, session = order[i - 1], order[i]
        if user[before] == user[session]:
            moved_s[session] = max(start_s[session], moved_s[before] + duration_s[before] + pause_s[session])
    return moved_s
