"""Chains of jobs -> the same jobs in other chains: sessions exchange what follows two jobs that are alike.

A user who has just submitted a job like this one went on like that on another day. Exchanging tails at such points
keeps every job, and keeps what jobs follow each other, what each user does, and roughly when; it makes no chain that
bites its tail. An exchange is refused if it would pile work where the log had none (users wait for their results, so
bursts of one user rarely fall together), stretch a session into the next one, or move a job too far in the calendar.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NONE = -1
SPARE_JOBS = 3  # tails of a few jobs may be exchanged, whatever the ratio of their lengths


@dataclass(frozen=True, slots=True)
class Chains:
    """Nodes: first one slot a session (its place in time), then the jobs. Arrays are indexed by node."""

    after: Ints  # the next job of the chain, or NONE
    before: Ints
    gap_s: Floats  # from the node before; 0 for the first job of a session
    work: Floats  # size times run time
    at_s: Floats  # when the log has it
    room_s: Floats  # by slot: how long a session may last before the user's next one begins


@dataclass(frozen=True, slots=True)
class Kin:
    """Nodes that are alike stand together, in the order of time."""

    order: Ints  # place -> node
    place: Ints  # node -> place
    kind: Ints  # by place

    @classmethod
    def of(cls, kind: Ints, at_s: Floats) -> Kin:
        order = np.lexsort((at_s, kind))
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return cls(order, place, kind[order])


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _exchange(
    after: Ints, before: Ints, gap_s: Floats, work: Floats, at_s: Floats, room_s: Floats,
    order: Ints, place: Ints, kind: Ints, picks: Ints, offsets: Ints, far_s: float, most_work: float, ratio: float,
) -> int:  # fmt: skip
    done = 0
    for trial in range(len(picks)):
        i = picks[trial]
        at = place[i] + offsets[trial]
        if at < 0 or at >= len(order) or kind[at] != kind[place[i]]:
            continue
        j = order[at]
        if i == j:
            continue
        # Back to the slot: how long the session has lasted at each of the two jobs.
        lasted_i, slot_i = 0.0, i
        while before[slot_i] != NONE:
            lasted_i += gap_s[slot_i]
            slot_i = before[slot_i]
        lasted_j, slot_j = 0.0, j
        while before[slot_j] != NONE:
            lasted_j += gap_s[slot_j]
            slot_j = before[slot_j]
        if slot_i == slot_j:
            continue  # within one chain the exchange would close a ring
        tail_i, work_i, length_i, node = 0.0, 0.0, 0, after[i]
        while node != NONE:
            tail_i += gap_s[node]
            work_i += work[node]
            length_i += 1
            node = after[node]
        tail_j, work_j, length_j, node = 0.0, 0.0, 0, after[j]
        while node != NONE:
            tail_j += gap_s[node]
            work_j += work[node]
            length_j += 1
            node = after[node]
        if abs(work_i - work_j) > most_work or max(length_i, length_j) > ratio * min(length_i, length_j) + SPARE_JOBS:
            continue
        if lasted_i + tail_j > room_s[slot_i] or lasted_j + tail_i > room_s[slot_j]:
            continue
        next_i, next_j = after[i], after[j]
        if next_i != NONE and abs(at_s[slot_j] + lasted_j + gap_s[next_i] - at_s[next_i]) > far_s:
            continue
        if next_j != NONE and abs(at_s[slot_i] + lasted_i + gap_s[next_j] - at_s[next_j]) > far_s:
            continue
        after[i], after[j] = next_j, next_i
        if next_i != NONE:
            before[next_i] = j
        if next_j != NONE:
            before[next_j] = i
        done += 1
    return done


def exchange(
    chains: Chains, kin: Kin, tries: int, reach: int, far_s: float, most_work: float, ratio: float,
    rng: np.random.Generator,
) -> int:  # fmt: skip
    """Try so many exchanges between nodes at most `reach` places apart, in place; gives how many were made."""
    picks = rng.integers(0, len(kin.order), tries)
    offsets = rng.integers(-reach, reach + 1, tries)
    return int(_exchange(
        chains.after, chains.before, chains.gap_s, chains.work, chains.at_s, chains.room_s,
        kin.order, kin.place, kin.kind, picks, offsets, far_s, most_work, ratio,
    ))  # fmt: skip
