"""Forecasts of the end of memory: leaks are forecast early with an interval, harmless programs never."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from clustertwin.core.channels import CPU, JOB, NODE
from clustertwin.core.traces import NodeChannels
from clustertwin.telemetry.detection.forecast.memory_forecast import MemoryForecast, forecast
from clustertwin.telemetry.detection.forecast.memory_watch import MemoryWatch
from clustertwin.telemetry.moments.moment import LENGTH_S, JobMoment, Moment, assemble

pytestmark = pytest.mark.slow

NAN = float("nan")


def moment_of(*levels: NDArray[np.float64], end_s: int, job: bool = False) -> Moment:
    """Nodes, or a job on one, whose memory had these levels up to `end_s`; before them it is unknown."""
    recent = np.full((len(levels), LENGTH_S), NAN, np.float32)
    for row, each in enumerate(levels):
        part = each[max(end_s - LENGTH_S, 0) : end_s]
        recent[row, LENGTH_S - len(part) :] = part
    threads, valid = np.zeros((1, LENGTH_S, len(CPU)), np.float32), np.ones((1, LENGTH_S), np.bool_)
    moment = assemble(end_s, CPU, [(f"n{row + 1}", (0,), threads, valid) for row in range(len(levels))], [])
    if job:
        values = np.full((1, LENGTH_S, len(JOB)), NAN, np.float32)
        values[:, :, JOB.index("job_memory")] = recent
        return replace(moment, job_channels=JobMoment(JOB, ("7",), np.zeros(1, np.int32), values))
    values = np.full((len(levels), LENGTH_S, len(NODE)), NAN, np.float32)
    values[:, :, NODE.index("memory_used")] = recent
    return replace(moment, node_channels=NodeChannels(NODE, values))


def watched(*levels: NDArray[np.float64], job: bool = False, every_s: int = 10) -> list[MemoryForecast]:
    """All forecasts that a service would have made of these nodes."""
    watch, seconds = MemoryWatch(), max(map(len, levels))
    return [
        each
        for end_s in range(every_s, seconds, every_s)
        for each in watch.forecast(moment_of(*levels, end_s=end_s, job=job))
    ]


def jitter(levels: NDArray[np.float64], size: float = 2e-4) -> NDArray[np.float64]:
    return np.clip(levels + np.random.default_rng(1).normal(0, size, len(levels)), 0, 1)


def leak(onset: int, seconds: int, base: float = 0.3) -> NDArray[np.float64]:
    """Nothing until `onset`, then even growth that reaches the limit after `seconds` more."""
    t = np.arange(onset + seconds)
    return base + (1 - base) * np.clip((t - onset) / seconds, 0, 1)


@pytest.mark.parametrize("seconds", [120, 480, 7200])
def test_a_leak_is_forecast_with_more_than_half_of_its_time_left(seconds: int) -> None:
    """50 MB/s in 8 GB end after two minutes; 5 MB/s in 50 GB after two hours."""
    made = watched(jitter(leak(900, seconds)), every_s=max(seconds // 50, 10))
    assert made[0].end_s > 900
    assert 900 + seconds - made[0].end_s > seconds / 2
    true_s = np.array([900 + seconds - each.end_s for each in made])
    inside = [each.earliest_s <= true <= each.latest_s for each, true in zip(made, true_s, strict=True)]
    assert np.mean(inside) > 0.9


def test_a_job_is_named_and_so_is_its_node() -> None:
    (first, *_) = watched(jitter(leak(300, 600)), job=True)
    assert (first.node, first.job) == ("n1", "7")
    assert first.sentence.startswith("job 7 on n1: out of memory in ")
    assert watched(jitter(leak(300, 600)))[0].sentence.startswith("node n1: out of memory in ")


def test_one_moment_is_enough_for_a_fast_leak() -> None:
    (found,) = forecast(moment_of(jitter(leak(60, 300)), end_s=260))
    assert found.remaining_s == pytest.approx(100, rel=0.1)
    assert found.level == pytest.approx(0.3 + 0.7 * 200 / 300, abs=0.01)


def test_one_moment_is_not_enough_to_say_something_about_hours() -> None:
    assert forecast(moment_of(leak(0, 3600), end_s=300)) == []


HOUR = np.arange(3600.0)
HARMLESS = {
    "flat": np.full(3600, 0.6),
    "allocates and stops": 0.1 + 0.3 * np.minimum(HOUR / 400, 1),
    "allocates at once": np.where(HOUR < 600, 0.1, 0.9),
    "allocates most and stops": 0.1 + 0.85 * np.minimum(HOUR / 12, 1),
    "slows down": 0.2 + 0.3 * (1 - np.exp(-HOUR / 600)),
    "few steps": 0.1 + 0.2 * (HOUR // 900),
    "fills and frees": 0.2 + 0.3 * (HOUR / 300 % 1),
    "fills slowly and frees": 0.5 + 0.16 * (HOUR / 900 % 1),
    "collects garbage": 0.7 + 0.05 * (HOUR / 20 % 1),
    "frees": 0.9 - 0.5 * HOUR / 3600,
    "rises and falls": 0.5 + 0.15 * np.sin(HOUR / 200),
    "unknown": np.full(3600, NAN),
}


def test_programs_that_do_not_leak_have_no_forecast() -> None:
    assert watched(*(jitter(levels) for levels in HARMLESS.values())) == []


def test_a_forecast_ends_soon_after_the_growth() -> None:
    levels = leak(300, 1000)
    stops = 300 + 700
    levels[stops:] = levels[stops]
    made = watched(jitter(levels))
    assert made
    assert max(each.end_s for each in made) <= stops + 160


def test_gaps_do_not_stop_a_forecast() -> None:
    levels = jitter(leak(300, 900))
    levels[::3] = NAN
    levels[700:720] = NAN
    made = watched(levels)
    assert made
    assert made[0].end_s < 300 + 450


def test_the_memory_of_a_job_that_has_ended_is_not_kept() -> None:
    watch = MemoryWatch()
    levels = jitter(leak(0, 3600))
    for end_s in range(300, 1500, 10):
        watch.forecast(moment_of(levels, end_s=end_s, job=True))
    assert list(watch._places) == [("n1", "7")]
    gone = moment_of(levels, end_s=1600)
    watch.forecast(gone)
    assert list(watch._places) == [("n1", "")]


def test_a_clock_that_was_set_loses_the_hours_and_nothing_else() -> None:
    watch = MemoryWatch()
    levels = jitter(leak(0, 4000))
    for end_s in (*range(300, 2000, 10), 1000, 1010):
        watch.forecast(moment_of(levels, end_s=end_s))
    (found,) = forecast(moment_of(jitter(leak(60, 300)), end_s=260))
    assert found.remaining_s > 0


#: The resident memory, in MB, of programs that ran on a shared virtual machine, second by second. They were recorded
#: after the constants of the forecast had been chosen.
RECORDED = np.load(Path(__file__).parent / "recorded_memory.npz")


@pytest.mark.parametrize("name", ["leak5", "leak50"])
def test_a_recorded_leak_is_forecast_with_more_than_half_of_its_time_left(name: str) -> None:
    """5 MB/s for seven minutes and 50 MB/s for 100 s; the limit is the memory that the program had at its end."""
    used = RECORDED[name].astype(np.float64)
    levels = used / used.max()
    made = watched(levels, job=True)
    assert made[0].end_s < len(levels) / 2
    inside = [each.earliest_s <= len(levels) - each.end_s <= each.latest_s for each in made]
    assert np.mean(inside) >= 0.9


@pytest.mark.parametrize("name", ["stop", "steps", "teeth"])
def test_a_recorded_program_that_does_not_leak_has_no_forecast(name: str) -> None:
    """1.2 GB at 20 MB/s and no more, five steps of 300 MB, and 1 GB filled and freed five times, in 4 GB."""
    assert watched(RECORDED[name].astype(np.float64) / 4000, job=True) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        ((840, 540, 1500), "out of memory in 14 min (9–25)"),
        ((100, 80, 130), "out of memory in 100 s (80–130)"),
        ((4 * 3600, 3 * 3600, 6 * 3600), "out of memory in 4 h (3–6)"),
    ],
)
def test_a_forecast_says_when_in_one_unit(seconds: tuple[int, int, int], text: str) -> None:
    assert MemoryForecast("n1", "", 0, *seconds, level=0.5, rate=1e-3, growing_s=600).short == text
