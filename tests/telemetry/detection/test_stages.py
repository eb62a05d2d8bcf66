"""Stages of a program, told from faults by its memory, its page faults and its own work; drawn by hand."""

from __future__ import annotations

import pytest
from tests.telemetry.detection.drawn_jobs import Phase, draw, pages

pytestmark = pytest.mark.slow

BUSY, IDLE = (0.97, 0.01, 0.0), (0.004, 0.002, 0.0)
FAULTS = 0.4  # page faults as their channel: 67 a second


def test_a_stage_with_fewer_tasks_gives_memory_back_and_a_rank_that_hangs_does_not() -> None:
    works = Phase(400, BUSY, memory=(0.4, 0.4), page_faults=FAULTS)
    fewer = [BUSY, BUSY, BUSY, BUSY, IDLE, IDLE]
    stage = Phase(250, fewer, memory=(0.2, 0.2), page_faults=FAULTS)
    assert pages(draw([works, stage], 6)) == {}
    assert "hung-rank" in pages(draw([works, Phase(250, fewer, memory=(0.4, 0.4), page_faults=FAULTS)], 6))


def test_ranks_that_wait_for_one_that_died_are_found_although_it_gave_its_memory_back() -> None:
    works = Phase(300, BUSY, memory=(0.4, 0.4), page_faults=FAULTS)
    died = Phase(200, [IDLE, *[(0.99, 0.005, 0.0)] * 5], memory=(0.33, 0.33), page_faults=0.0)
    assert "hung-rank" in pages(draw([works, died], 6))


def test_a_stage_that_reads_more_than_ever_has_no_straggler() -> None:
    merges = Phase(200, [(0.5, 0.1, 0.1)] * 4 + [IDLE] * 4, disk=140)
    assert pages(draw([Phase(400, BUSY, disk=25), merges], 8)) == {}


def test_memory_that_a_job_had_before_and_takes_again_is_no_leak() -> None:
    had = Phase(400, BUSY, memory=(0.45, 0.45))
    again = Phase(240, BUSY, memory=(0.2, 0.4))
    assert pages(draw([had, Phase(60, BUSY, memory=(0.2, 0.2)), again], 4)) == {}
    assert "leak" in pages(draw([had, Phase(240, BUSY, memory=(0.45, 0.65))], 4))


def test_time_in_the_kernel_that_comes_with_page_faults_is_work() -> None:
    computes = Phase(300, (0.85, 0.06, 0.0), page_faults=0.94)
    forks = Phase(70, (0.5, 0.4, 0.0), page_faults=0.9975)
    assert pages(draw([computes, forks, computes, forks, computes], 4)) == {}
    assert "kernel-time" in pages(draw([computes, Phase(200, (0.5, 0.4, 0.0), page_faults=0.94)], 4))


def test_a_job_that_uses_one_of_32_threads_and_stops_is_idle() -> None:
    serial = [BUSY, *[IDLE] * 31]
    assert "idle" in pages(draw([Phase(300, serial), Phase(200, (0.0, 0.0, 0.0))], 32))
    # It waited twice before: it may wait again.
    waits = [Phase(120, serial), Phase(60, (0.0, 0.0, 0.0))]
    assert pages(draw([*waits, *waits, Phase(120, serial), Phase(200, (0.0, 0.0, 0.0))], 32)) == {}


def test_one_task_on_32_threads_that_a_quota_stops_is_throttled() -> None:
    half = [(0.5, 0.01, 0.0), *[IDLE] * 31]
    assert "throttled" in pages(draw([Phase(200, half, throttled=0.5 / 32, queued=0.5)], 32))


def test_one_task_on_32_threads_that_waits_for_io_only_is_stalled() -> None:
    quiet = [(0.0, 0.0, 0.0)] * 31
    assert "stalled-io" in pages(draw([Phase(300, [(0.01, 0.01, 0.95), *quiet])], 32))
    assert pages(draw([Phase(300, [(0.01, 0.01, 0.95), *quiet], disk=30)], 32)) == {}


def test_two_ranks_on_one_cpu_are_misbound_although_they_show_no_progress() -> None:
    works = Phase(240, BUSY, page_faults=0.08)
    confined = Phase(160, [(1.0, 0.0, 0.0), IDLE], page_faults=0.0, queued=1.0, tasks_waiting=1)
    assert pages(draw([works, confined], 2)).keys() == {"misbound"}


def test_a_rank_that_waits_for_io_is_not_called_a_straggler() -> None:
    blocked = Phase(200, [(0.0, 0.0, 0.99), IDLE])
    found = pages(draw([Phase(300, BUSY), blocked], 2))
    assert "stalled-io" in found
    assert "straggler" not in found


def test_ranks_that_part_and_meet_again_have_no_straggler_and_ranks_that_never_meet_have_one() -> None:
    even, waits = Phase(45, BUSY), Phase(15, [BUSY, *[(0.3, 0.02, 0.0)] * 5])
    assert pages(draw([Phase(300, BUSY), *[even, waits] * 8], 6)) == {}
    slow = Phase(45, [BUSY, *[(0.75, 0.02, 0.0)] * 5])
    # … also in a program whose ranks always parted for some of the time.
    assert "straggler" in pages(draw([*[even, waits] * 6, *[slow, waits] * 4], 6))


def test_loads_that_drift_apart_have_no_straggler_and_a_rank_that_falls_back_at_once_is_one() -> None:
    def loads(share: float) -> list[tuple[float, float, float]]:
        return [BUSY, BUSY, BUSY, (share, 0.01, 0.0)]

    drifts = [Phase(30, loads(0.97 - 0.015 * step)) for step in range(18)]  # by three points a minute
    assert pages(draw([Phase(700, BUSY), *drifts], 4)) == {}
    assert "straggler" in pages(draw([Phase(700, BUSY), Phase(200, loads(0.78))], 4))


def test_tasks_that_end_one_after_the_other_give_their_memory_back_and_none_hangs() -> None:
    def tasks(left: int, seconds: int) -> Phase:
        memory = 0.04 + 0.015 * left
        return Phase(seconds, [BUSY] * left + [IDLE] * (6 - left), memory=(memory, memory), page_faults=FAULTS)

    assert pages(draw([tasks(6, 90), tasks(5, 25), tasks(4, 25), tasks(3, 30), tasks(2, 120)], 6)) == {}
