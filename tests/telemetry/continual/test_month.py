from dataclasses import replace

import numpy as np
import pytest

from clustertwin.telemetry.campaign.simulation.signature import read_signatures
from clustertwin.telemetry.continual.challengers import Training
from clustertwin.telemetry.continual.month import Lived, MonthSettings, Strategy, live_month, summarise
from clustertwin.telemetry.continual.world import World, live

SMALL_WORLD = World(nodes=2, threads=8, hours=0.5)


def test_the_failing_disk_turns_user_time_into_waiting_on_one_node_only():
    early, late = (live(SMALL_WORLD, day, read_signatures(), 0) for day in (3, 14))
    for before, after in zip(early, late, strict=True):
        np.testing.assert_allclose(after.values.sum(-1), 1, atol=1e-5)
        waits = after.values[..., 2].mean() - before.values[..., 2].mean()
        assert (waits > 0.02) == (after.node == SMALL_WORLD.creeping_node)


def test_new_hardware_and_new_jobs_come_on_their_days():
    types = [
        {span.job_type for t in live(SMALL_WORLD, day, read_signatures(), 0) for span in t.spans} for day in (0, 11)
    ]
    assert types[0] <= {"np", "mpi-2", "mpi-4"}
    assert types[1] <= {"np", "good-io", "mpi-8", "render"}
    worlds = replace(SMALL_WORLD, new_hardware=99), SMALL_WORLD
    old, new = (live(world, 17, read_signatures(), 0)[1].values.mean((0, 1)) for world in worlds)
    assert new[1] - old[1] == pytest.approx(0.1 * old[0], rel=1e-3)


def test_the_row_of_a_month_on_paper():
    days = [
        Lived(1, 0.2, 4.0, float("nan"), False, 0.9, 0.1, "promoted", 1800.0),
        Lived(2, 0.4, 2.0, 0.5, True, 0.8, 0.3, "kept", 1800.0),
    ]
    row = summarise("x", days)
    assert (row.error, row.false_events, row.detected, row.unnoticed) == (pytest.approx(0.3), 3.0, 0.5, 1)
    assert (row.golden, row.forgetting, row.promoted, row.training_h) == (0.8, pytest.approx(3.0), 1, 1.0)


@pytest.mark.slow
def test_strategies_live_through_the_same_days(small_golden):
    settings = MonthSettings(
        days=2, world=World(nodes=2, threads=16, hours=1.0), training=Training(epochs=1, warm_epochs=1), moments=25
    )
    months = [
        live_month(strategy, settings, read_signatures(), small_golden)
        for strategy in (Strategy("never"), Strategy("warm", "warm", replay=True))
    ]
    assert [day.outcome for day in months[0]] == ["never", "never"]
    assert all(day.outcome in ("promoted", "kept") and day.training_s > 0 for day in months[1])
    assert months[0][0].error == months[1][0].error  # the first day has the same champion
