"""Chains of jobs -> the same jobs in other chains: sessions exchange their tails after two similar jobs.

After a job like this one, the same user continued differently on another day. Exchanging tails at such points keeps
every job, keeps which jobs follow each other and what each user does, and roughly keeps the dates. It never creates a
cycle. An exchange is rejected if it would move too much work (users wait for their results, so large bursts of one user
rarely coincide), extend a session into the user's next one, or move a job too far in time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.compiled import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NONE = -1
SPARE_JOBS = 3  # tails that differ by no more than this many jobs may be exchanged, whatever the ratio of their lengths


class SessionChains(NamedTuple):
    """Linked lists of jobs. Nodes: first one slot per session (its place in time), then the jobs; indexed by node."""

    after: Ints  # the next job of the chain, or NONE
    before: Ints  # the previous node of the chain, or NONE
    gap_s: Floats  # since the previous node; 0 for the first job of a session
    work: Floats  # size times run time
    at_s: Floats  # the time of the job in the real log
    room_s: Floats  # by slot: how long the session may last before the user's next session begins


class SimilarNodes(NamedTuple):
    """Nodes sorted by kind, then by time: similar nodes are neighbours."""

    order: Ints  # place -> node
    place: Ints  # node -> place
    kind: Ints  # by place

    @classmethod
    def of(cls, kind: Ints, at_s: Floats) -> SimilarNodes:
        order = np.lexsort((at_s, kind))
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return cls(order, place, kind[order])


class ExchangeLimits(NamedTuple):
    """An exchange beyond one of these limits is rejected."""

    far_s: float  # how far a job may move in time
    most_work: float  # how much the work of the two tails may differ
    ratio: float  # how much the lengths of the two tails may differ


@compiled
def _lasted(chains: SessionChains, node: int) -> tuple[float, int]:
    """How long the session of a node has lasted up to it, and the slot of the session."""
    lasted_s = 0.0
    while chains.before[node] != NONE:
        lasted_s += chains.gap_s[node]
        node = chains.before[node]
    return lasted_s, node


@compiled
def _tail(chains: SessionChains, node: int) -> tuple[float, float, int]:
    """Duration, work and number of the jobs after a node."""
    duration_s, work, length, node = 0.0, 0.0, 0, chains.after[node]
    while node != NONE:
        duration_s += chains.gap_s[node]
        work += chains.work[node]
        length += 1
        node = chains.after[node]
    return duration_s, work, length


@compiled
def _exchange(chains: SessionChains, similar: SimilarNodes, picks: Ints, offsets: Ints, limits: ExchangeLimits) -> int:
    exchanged = 0
    for trial in range(len(picks)):
        i = picks[trial]
        at = similar.place[i] + offsets[trial]
        if at < 0 or at >= len(similar.order) or similar.kind[at] != similar.kind[similar.place[i]]:
            continue
        j = similar.order[at]
        if i == j:
            continue
        lasted_i, slot_i = _lasted(chains, i)
        lasted_j, slot_j = _lasted(chains, j)
        if slot_i == slot_j:
            continue  # within one chain the exchange would close a cycle
        tail_i, work_i, length_i = _tail(chains, i)
        tail_j, work_j, length_j = _tail(chains, j)
        if abs(work_i - work_j) > limits.most_work:
            continue
        if max(length_i, length_j) > limits.ratio * min(length_i, length_j) + SPARE_JOBS:
            continue
        if lasted_i + tail_j > chains.room_s[slot_i] or lasted_j + tail_i > chains.room_s[slot_j]:
            continue
        next_i, next_j = chains.after[i], chains.after[j]
        if next_i != NONE:
            new_s = chains.at_s[slot_j] + lasted_j + chains.gap_s[next_i]
            if abs(new_s - chains.at_s[next_i]) > limits.far_s:
                continue
        if next_j != NONE:
            new_s = chains.at_s[slot_i] + lasted_i + chains.gap_s[next_j]
            if abs(new_s - chains.at_s[next_j]) > limits.far_s:
                continue
        chains.after[i], chains.after[j] = next_j, next_i
        if next_i != NONE:
            chains.before[next_i] = j
        if next_j != NONE:
            chains.before[next_j] = i
        exchanged += 1
    return exchanged


def exchange(
    chains: SessionChains,
    similar: SimilarNodes,
    limits: ExchangeLimits,
    tries: int,
    reach: int,
    rng: np.random.Generator,
) -> int:
    """Try exchanges between similar nodes at most `reach` places apart, in place; returns the number that succeeded."""
    picks = rng.integers(0, len(similar.order), tries)
    offsets = rng.integers(-reach, reach + 1, tries)
    return int(_exchange(chains, similar, picks, offsets, limits))
