"""Shapes of healthy programs that nobody is paged for, and of faults that are found, with the channels of a cgroup."""

from __future__ import annotations

import numpy as np
import pytest
from tests.telemetry.detection.drawn_jobs import Phase, draw, pages

pytestmark = pytest.mark.slow

BUSY, IDLE = (0.97, 0.01, 0.0), (0.004, 0.002, 0.0)


def _notebook() -> list[Phase]:
    rng = np.random.default_rng(5)
    rests, works = rng.integers(40, 220, 8), rng.integers(10, 60, 8)
    pairs = zip(rests.tolist(), works.tolist(), strict=True)
    return [phase for rest, work in pairs for phase in (Phase(rest, IDLE), Phase(work, [BUSY, IDLE, IDLE, IDLE]))]


def _database() -> list[Phase]:
    loads = np.clip(np.cumsum(np.random.default_rng(5).normal(0, 0.06, 40)) + 0.3, 0.03, 0.7).tolist()
    return [Phase(30, (load, load / 5, 0.02), disk=20 * load) for load in loads]


def _one_task(seconds: int, threads: int, page_faults: float = np.nan) -> list[Phase]:
    """One task that is not bound. Recorded on two CPUs, the kernel moves such a task every few seconds at most."""
    places = [[BUSY if thread == at else IDLE for thread in range(threads)] for at in range(threads)]
    return [Phase(4, places[i % threads], page_faults=page_faults) for i in range(seconds // 4)]


HEALTHY: dict[str, tuple[list[Phase], int]] = {  # phases, threads
    "a notebook": (_notebook(), 4),
    "a shell": ([Phase(900, IDLE)], 2),
    "waits for a licence and then works": ([Phase(400, IDLE), Phase(600, BUSY)], 4),
    "a master that only waits": ([Phase(900, [IDLE, BUSY, BUSY, BUSY])], 4),
    "an I/O phase": ([Phase(400, BUSY), Phase(240, (0.2, 0.1, 0.6), disk=150), Phase(200, BUSY)], 4),
    "an I/O phase over the network": ([Phase(400, BUSY), Phase(240, (0.1, 0.1, 0.3), network=90)], 4),
    "check-points": ([Phase(285, BUSY), Phase(15, (0.05, 0.1, 0.8), disk=300)] * 3, 4),
    "a slow check-point": ([Phase(400, BUSY), Phase(60, (0.02, 0.05, 0.9), disk=40), Phase(200, BUSY)], 4),
    "a serial tail": ([Phase(600, BUSY), Phase(500, [BUSY, IDLE, IDLE, IDLE])], 4),
    "a serial tail that is not bound": ([Phase(600, BUSY), *_one_task(500, 4)], 4),
    "a serial beginning": ([Phase(300, [BUSY, IDLE, IDLE, IDLE]), Phase(500, BUSY)], 4),
    "allocates most of its memory at once": (
        [Phase(40, BUSY, memory=(0, 0.85)), Phase(500, BUSY, memory=(0.85, 0.85))],
        4,
    ),
    "loads its input": (
        [Phase(200, (0.3, 0.1, 0.2), memory=(0, 0.6), disk=80), Phase(500, BUSY, memory=(0.6, 0.6))],
        4,
    ),
    "allocates again later": (
        [
            Phase(400, BUSY, memory=(0.1, 0.1)),
            Phase(60, BUSY, memory=(0.1, 0.3)),
            Phase(300, BUSY, memory=(0.3, 0.3)),
        ],
        4,
    ),
    "loads more input later": (
        [Phase(400, BUSY, memory=(0.1, 0.1)), Phase(300, (0.6, 0.1, 0.1), memory=(0.1, 0.4), disk=30)],
        4,
    ),
    "collects garbage": ([Phase(100, BUSY, memory=(0.2, 0.4))] * 8, 4),
    "collects garbage seldom": ([Phase(400, BUSY, memory=(0.2, 0.4))] * 2, 4),
    "a burst buffer": ([Phase(200, BUSY), Phase(20, (0.1, 0.3, 0.3), disk=800)] * 4, 4),
    "one of two hyperthreads": ([Phase(900, [BUSY] * 4 + [IDLE] * 4)], 8),
    "a GPU does the work": ([Phase(900, [BUSY, IDLE, IDLE, IDLE])], 4),
    "epochs on a GPU": ([Phase(80, (0.8, 0.05, 0)), Phase(200, [(0.2, 0.02, 0), IDLE, IDLE, IDLE])] * 4, 4),
    "data loaders": ([Phase(900, [(0.6, 0.1, 0), *[(0.3, 0.05, 0.1)] * 3], disk=100)], 4),
    "computes and then downloads": ([Phase(400, BUSY), Phase(300, (0.02, 0.03, 0), network=60)], 4),
    "a database": (_database(), 4),
    "compiles": ([Phase(250, (0.75, 0.15, 0.01), queued=0.2), Phase(60, [BUSY, IDLE, IDLE, IDLE])] * 3, 4),
    "with a nice'd helper": ([Phase(900, (0.97, 0.02, 0), queued=0.3)], 4),
    "beside cron": ([Phase(300, BUSY), Phase(40, BUSY, others=[0.5, 0, 0, 0])] * 3, 4),
    "uses a quarter of what it asked for": ([Phase(900, [BUSY] * 4 + [IDLE] * 12)], 16),
    "beside a job that writes": ([Phase(900, (0.6, 0.05, 0.1), disk=20, other_disk=300)], 4),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_nobody_is_paged_for_a_healthy_program(name: str) -> None:
    phases, threads = HEALTHY[name]
    assert pages(draw(phases, threads, seed=1, node_threads=max(threads, 4)), every_s=15) == {}


def _faults(threads: int) -> dict[str, tuple[Phase, set[str]]]:
    """Name -> the fault, and the causes that name it."""
    rest = threads - 1
    return {
        "throttled": (Phase(300, (0.58, 0.01, 0), throttled=0.4, queued=0.4), {"throttled"}),
        "one rank stopped, the others spin": (
            Phase(400, [IDLE, *[(0.99, 0.005, 0.0)] * rest]),
            {"hung-rank"} if threads > 2 else {"idle"} if threads == 1 else {"one-thread-left"},
        ),
        "finished and holds its threads": (Phase(300, IDLE), {"idle"}),
        "leaks 10 MB/s of 4 GB a thread": (Phase(300, BUSY, memory=(0.3, 0.3 + 0.7 / threads)), {"leak"}),
        "another program on one thread": (Phase(300, BUSY, others=[0.5, *[0.0] * rest]), {"cpu-contention"}),
        "blocked in I/O": (Phase(300, (0.01, 0.01, 0.95)), {"stalled-io"}),
        "a straggler": (
            Phase(300, [BUSY, *[(0.64, 0.02, 0.0)] * rest] if rest else (0.64, 0.02, 0.0)),
            {"straggler"} if rest else {"idle"},
        ),
    }


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("name", _faults(1))
def test_a_fault_after_three_minutes_is_found_and_named(name: str, threads: int) -> None:
    fault, named = _faults(threads)[name]
    found = pages(draw([Phase(180, BUSY), fault], threads, seed=2, node_threads=8), every_s=15)
    assert found.keys() & named
    assert min(found[cause] for cause in found.keys() & named) > 180


def test_a_rank_that_waits_for_a_stopped_one_is_told_from_a_serial_phase_by_its_page_faults() -> None:
    worked = Phase(240, BUSY, page_faults=0.08)
    """The one of two ranks that is left is not bound, so it is now on one CPU, now on the other."""
    found = pages(draw([worked, *_one_task(360, 2, page_faults=0.0)], 2, seed=3), every_s=10)
    assert found["hung-rank"] <= 240 + 130
    assert "idle" not in found
    assert "hung-rank" not in pages(draw([worked, *_one_task(360, 2, page_faults=0.05)], 2, seed=3), every_s=10)


@pytest.mark.parametrize("threads", [1, 2, 4, 8])
def test_what_the_kernel_counts_as_lost_time_is_found_from_the_start(threads: int) -> None:
    neighbour = Phase(300, BUSY, others=[0.5, *[0.0] * (threads - 1)])
    assert "cpu-contention" in pages(draw([neighbour], threads, node_threads=8), every_s=15)
    confined = Phase(300, [BUSY, *[IDLE] * (threads - 1)], queued=0.95, tasks_waiting=threads - 1)
    assert ("misbound" in pages(draw([confined], threads, node_threads=8), every_s=15)) == (threads > 1)


def test_a_serial_program_on_two_threads_is_not_misbound() -> None:
    assert pages(draw([Phase(900, [BUSY, IDLE])], 2), every_s=15) == {}


def test_a_leak_from_the_first_second_on_is_found_once_it_outlasts_any_start() -> None:
    leak = Phase(500, BUSY, memory=(0.05, 0.8))
    assert 300 <= pages(draw([leak], 4), every_s=15)["leak"] <= 330


def test_the_traffic_of_another_job_does_not_excuse_a_job_that_waits_for_io() -> None:
    waits = Phase(300, (0.3, 0.02, 0.65), disk=0.5, other_disk=300)
    assert "stalled-io" in pages(draw([waits], 4, node_threads=8, writer=True), every_s=15)
    # Where nobody knows whose traffic it is, it may be the job's own.
    assert pages(draw([waits], 4, node_threads=8), every_s=15) == {}


def test_only_a_job_that_waits_for_memory_swaps() -> None:
    assert pages(draw([Phase(300, BUSY, swap=3000)], 4), every_s=15) == {}
    assert "swapping" in pages(draw([Phase(300, BUSY, swap=3000, memory_waits=0.1)], 4), every_s=15)
