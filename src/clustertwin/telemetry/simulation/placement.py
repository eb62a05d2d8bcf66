"""Fill a cluster with jobs: requests, rng -> placed jobs, no thread ever held by two at once.

Jobs come back to back with short gaps, on parts of nodes, several to a node, wide ones over several nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.simulation.signature import IDLE

_QUEUE = 12  # requests that are looked at before a thread is kept waiting
_PATIENCE_S = 60


@dataclass(frozen=True, slots=True)
class Request:
    """A job before it has a place; `idle` asks for a pause that nobody uses."""

    job_type: str
    threads: int
    length: int  # whole seconds
    anomaly: str = ""


@dataclass(frozen=True, slots=True)
class Seat:
    """A job's threads on one node."""

    node: int
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """A job with its threads and its whole seconds, counted from the start of the recording."""

    request: Request
    seats: tuple[Seat, ...]
    start: int
    end: int


def place(
    ask: Callable[[np.random.Generator], Request],
    nodes: int,
    threads: int,
    seconds: int,
    rng: np.random.Generator,
    gap_s: float = 30.0,
) -> list[Placed]:
    """Jobs until no thread is free before the end, which cuts the last ones; `gap_s` is a thread's mean pause."""
    free_at = rng.integers(0, max(2, int(gap_s)), (nodes, threads)).astype(np.int64)  # (node, thread) second
    jobs: list[Placed] = []
    while free_at.min() < seconds:
        request, seats, start = _next(ask, free_at, rng)
        end = start + request.length
        pause = 1 + round(rng.exponential(gap_s))
        for seat in seats:
            free_at[seat.node, list(seat.cpus)] = end + pause
        if start < seconds and request.job_type != IDLE:
            jobs.append(Placed(request, seats, start, min(end, seconds)))
    return jobs


def _next(
    ask: Callable[[np.random.Generator], Request], free_at: NDArray[np.int64], rng: np.random.Generator
) -> tuple[Request, tuple[Seat, ...], int]:
    """As a backfilling scheduler does: the first of a few requests that need not wait, else the one at the head."""
    head: tuple[Request, tuple[Seat, ...], int] | None = None
    for _ in range(_QUEUE):
        request = ask(rng)
        across = _spread(request.threads, len(free_at), free_at.shape[1], rng)
        seats = _seats(free_at, across, request.threads // across)
        start = max(int(free_at[seat.node, list(seat.cpus)].max()) for seat in seats)
        head = head or (request, seats, start)
        if start <= free_at.min() + _PATIENCE_S:
            return request, seats, start
    assert head is not None
    return head


def _spread(width: int, nodes: int, threads: int, rng: np.random.Generator) -> int:
    """Over how many nodes: as few as hold it, sometimes more; its threads divide evenly among them."""
    possible = [n for n in range(1, nodes + 1) if width % n == 0 and width // n <= threads]
    return possible[0] if rng.random() < 0.7 else int(rng.choice(possible[:3]))


def _seats(free_at: NDArray[np.int64], across: int, each: int) -> tuple[Seat, ...]:
    """The threads that fall free first, on the nodes where they do."""
    order = np.argsort(free_at, axis=1, kind="stable")[:, :each]  # (node, each) the earliest threads of every node
    ready = np.take_along_axis(free_at, order[:, -1:], axis=1)[:, 0]
    chosen = np.argsort(ready, kind="stable")[:across].tolist()
    return tuple(Seat(node, tuple(sorted(order[node].tolist()))) for node in chosen)
