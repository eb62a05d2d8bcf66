"""Stages that bring their own memory and I/O, told from faults; drawn by hand."""

from __future__ import annotations

import pytest
from tests.telemetry.detection.drawn_jobs import Phase, draw, pages

pytestmark = pytest.mark.slow

BUSY, IDLE = (0.97, 0.01, 0.0), (0.004, 0.002, 0.0)


def test_memory_that_begins_to_grow_with_a_new_stage_is_no_leak() -> None:
    serial = Phase(300, [BUSY, IDLE, IDLE, IDLE], memory=(0.1, 0.1))
    assert pages(draw([serial, Phase(400, BUSY, memory=(0.1, 0.7))], 4)) == {}
    assert "leak" in pages(draw([Phase(300, BUSY, memory=(0.1, 0.1)), Phase(400, BUSY, memory=(0.1, 0.7))], 4))


def test_memory_that_a_stage_nearly_fills_is_reported() -> None:
    serial = Phase(300, [BUSY, IDLE, IDLE, IDLE], memory=(0.1, 0.1))
    assert "leak" in pages(draw([serial, Phase(600, BUSY, memory=(0.1, 0.99))], 4))


def test_a_job_that_always_waits_for_io_may_wait_more_as_long_as_something_is_transferred() -> None:
    large, small = Phase(400, (0.1, 0.2, 0.3), disk=200), Phase(300, (0.1, 0.1, 0.45), disk=10)
    assert pages(draw([large, small], 2)) == {}
    assert "stalled-io" in pages(draw([large, Phase(300, (0.01, 0.01, 0.9), disk=0.5)], 2))


def test_traffic_that_explains_waits_explains_them_for_as_long_as_it_lasts() -> None:
    assert pages(draw([Phase(300, BUSY), Phase(1200, (0.5, 0.06, 0.3), disk=250)], 4)) == {}


def test_a_job_that_did_little_at_its_start_and_then_does_nothing_at_all_is_idle() -> None:
    little, nothing = Phase(60, (0.055, 0.03, 0.0)), Phase(200, (0.0, 0.0, 0.0))
    assert "idle" in pages(draw([Phase(30, BUSY), little, Phase(190, BUSY), nothing], 4))
