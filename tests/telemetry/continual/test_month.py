from dataclasses import replace

import numpy as np
import pytest

from clustertwin.telemetry.campaign.simulation.signature import read_signatures
from clustertwin.telemetry.continual.challengers import Training
from clustertwin.telemetry.continual.month import MonthSettings, Strategy, begin, live_month
from clustertwin.telemetry.continual.month_report import Lived, draw, read_days, summarise, write_days
from clustertwin.telemetry.continual.people import People, vet
from clustertwin.telemetry.continual.world import World, live
from clustertwin.telemetry.detection.events import Event

SMALL_WORLD = World(nodes=2, threads=8, hours=0.5)
DAYS = [
    Lived(1, True, 0.2, 4.0, float("nan"), False, 0.9, 0.1, "promoted", 1800.0),
    Lived(2, False, 0.4, 2.0, 0.5, True, 0.8, 0.3, "kept", 1800.0),
]


def test_the_failing_disk_turns_user_time_into_waiting_on_one_node_only():
    early, late = (live(SMALL_WORLD, day, read_signatures(), 0) for day in (3, 14))
    for before, after in zip(early, late, strict=True):
        np.testing.assert_allclose(after.values.sum(-1), 1, atol=1e-5)
        waits = after.values[..., 2].mean() - before.values[..., 2].mean()
        assert (waits > 0.02) == (after.node == SMALL_WORLD.creeping_node)


def test_new_hardware_and_new_jobs_come_on_their_days():
    assert [day for day in range(31) if World().brings_new(day)] == [6, 10, 15, 20]
    types = [
        {span.job_type for t in live(SMALL_WORLD, day, read_signatures(), 0) for span in t.spans} for day in (0, 11)
    ]
    assert types[0] <= {"np", "mpi-2", "mpi-4"}
    assert types[1] <= {"np", "good-io", "mpi-8", "render"}
    worlds = replace(SMALL_WORLD, new_hardware=99), SMALL_WORLD
    old, new = (live(world, 17, read_signatures(), 0)[1].values.mean((0, 1)) for world in worlds)
    assert new[1] - old[1] == pytest.approx(0.1 * old[0], rel=1e-3)


def test_nothing_is_wrong_on_the_days_that_the_first_champion_learns_from():
    days = [live(SMALL_WORLD, day, read_signatures(), 0) for day in range(-4, 1)]
    assert not [span for traces in days for trace in traces for span in trace.spans if span.anomaly]


def test_the_row_of_a_month_on_paper():
    row = summarise("x", DAYS)
    assert (row.error, row.false_events, row.detected, row.unnoticed) == (pytest.approx(0.3), 3.0, 0.5, 1)
    assert row.false_usual == 2.0  # the first day brought something new
    assert (row.golden, row.forgetting, row.promoted, row.training_h) == (0.8, pytest.approx(3.0), 1, 1.0)


def test_days_are_written_read_and_drawn(tmp_path):
    write_days(tmp_path / "x.json", DAYS)
    again = read_days(tmp_path / "x.json")
    assert again[1] == DAYS[1]
    assert np.isnan(again[0].detected)
    draw({"x": again}, tmp_path / "month.png")
    assert (tmp_path / "month.png").read_bytes().startswith(b"\x89PNG")


def test_people_are_late_and_mistaken_as_often_as_they_say_and_get_the_disk_replaced():
    world, (first, second) = SMALL_WORLD, live(SMALL_WORLD, 6, read_signatures(), 0)
    start_s = world.day(6).start_s
    events = [
        Event(f"{n}", ((trace.node, (0,)),), (), "", start_s + 500, start_s + 600, None, 9.0, "density", "")
        for n in range(200)
        for trace in (first, second)
    ]
    said = vet(world, People(), 6, [first, second], events, np.random.default_rng(0))
    disk = [one for one in said if one.vetted.node == world.creeping_node]
    healthy = [one for one in said if one.vetted.node != world.creeping_node]
    assert sum(one.vetted.verdict == "confirmed" for one in disk) == pytest.approx(180, abs=15)
    assert sum(one.vetted.verdict == "confirmed" for one in healthy) == pytest.approx(2, abs=4)
    assert {one.known for one in said} == {6, 7, 8}
    assert all(one.repaired == one.known + 2 for one in disk if one.vetted.verdict == "confirmed")
    assert all(one.repaired is None for one in healthy)


@pytest.mark.slow
def test_strategies_live_through_the_same_days(small_golden):
    settings = MonthSettings(
        days=2, world=World(nodes=2, threads=16, hours=1.0), training=Training(epochs=1, warm_epochs=1), moments=25
    )
    beginning = begin(settings, read_signatures(), small_golden)
    months = [
        live_month(strategy, settings, read_signatures(), beginning)
        for strategy in (Strategy("never"), Strategy("warm", "warm", replay=True), Strategy("same", "recalibrated"))
    ]
    assert [day.outcome for day in months[0]] == ["never", "never"]
    assert all(day.outcome in ("promoted", "kept") and day.training_s > 0 for day in months[1])
    assert len({month[0].error for month in months}) == 1  # the first day has the same champion
    assert months[2][1].error == months[0][1].error  # the same weights, whatever is usual by now
