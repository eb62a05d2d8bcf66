"""Fill a cluster with jobs: requests, rng -> placed jobs; a thread never holds two jobs at once.

Jobs follow each other with short gaps. They take parts of nodes, several jobs share a node, and wide jobs span nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.simulation.signature import IDLE

_BACKFILL_DEPTH = 12  # requests that are tried before threads stay free for the first one
_LONGEST_WAIT_S = 60  # beyond the first free thread, for a request that is started out of order


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A job before placement; the type `idle` reserves threads that no job uses."""

    job_type: str
    threads: int
    length: int  # whole seconds
    anomaly: str = ""


@dataclass(frozen=True, slots=True)
class NodeAllocation:
    """The threads of a job on one node."""

    node: int
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A job with its threads, its start and its end, in seconds from the start of the recording."""

    request: PlacementRequest
    allocations: tuple[NodeAllocation, ...]
    start: int
    end: int


def place_jobs(
    draw_request: Callable[[np.random.Generator], PlacementRequest],
    nodes: int,
    threads: int,
    seconds: int,
    rng: np.random.Generator,
    gap_s: float = 30.0,
) -> list[PlacedJob]:
    """Place jobs until no thread is free before the end, which cuts the last jobs; `gap_s` is a thread's mean pause."""
    free_at = rng.integers(0, max(2, int(gap_s)), (nodes, threads)).astype(np.int64)  # (node, thread) second
    jobs: list[PlacedJob] = []
    while free_at.min() < seconds:
        request, allocations, start = _next_job(draw_request, free_at, rng)
        end = start + request.length
        pause = 1 + round(rng.exponential(gap_s))
        for allocation in allocations:
            free_at[allocation.node, list(allocation.cpus)] = end + pause
        if start < seconds and request.job_type != IDLE:
            jobs.append(PlacedJob(request, allocations, start, min(end, seconds)))
    return jobs


def _next_job(
    draw_request: Callable[[np.random.Generator], PlacementRequest],
    free_at: NDArray[np.int64],
    rng: np.random.Generator,
) -> tuple[PlacementRequest, tuple[NodeAllocation, ...], int]:
    """Backfilling: the first of a few requests that can start soon, otherwise the one at the head of the queue."""
    head: tuple[PlacementRequest, tuple[NodeAllocation, ...], int] | None = None
    for _ in range(_BACKFILL_DEPTH):
        request = draw_request(rng)
        nodes = _draw_node_count(request.threads, len(free_at), free_at.shape[1], rng)
        allocations = _allocate(free_at, nodes, request.threads // nodes)
        start = max(int(free_at[allocation.node, list(allocation.cpus)].max()) for allocation in allocations)
        head = head or (request, allocations, start)
        if start <= free_at.min() + _LONGEST_WAIT_S:
            return request, allocations, start
    assert head is not None
    return head


def _draw_node_count(width: int, nodes: int, threads: int, rng: np.random.Generator) -> int:
    """The number of nodes of a job: usually the smallest possible; its threads divide evenly among them."""
    possible = [n for n in range(1, nodes + 1) if width % n == 0 and width // n <= threads]
    return possible[0] if rng.random() < 0.7 else int(rng.choice(possible[:3]))


def _allocate(free_at: NDArray[np.int64], nodes: int, threads_per_node: int) -> tuple[NodeAllocation, ...]:
    """The nodes and threads that become free first."""
    order = np.argsort(free_at, axis=1, kind="stable")[:, :threads_per_node]  # (node, thread) earliest first
    ready = np.take_along_axis(free_at, order[:, -1:], axis=1)[:, 0]
    chosen = np.argsort(ready, kind="stable")[:nodes].tolist()
    return tuple(NodeAllocation(node, tuple(sorted(order[node].tolist()))) for node in chosen)
