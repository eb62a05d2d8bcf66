"""Comparing: distances on paper, and a classifier that finds a difference where there is one and none where not."""

import numpy as np
import pytest

from clustertwin.core.errors import InputError
from clustertwin.core.traces import Windows
from clustertwin.core.windows import cut
from clustertwin.telemetry.campaign.fitting.simulated_against_recorded import (
    compare,
    marginal_distance,
    separability,
    spectral_distance_db,
    windows_of,
)
from clustertwin.telemetry.campaign.fitting.window_features import features
from clustertwin.telemetry.simulation.demand import ClusterSettings
from clustertwin.telemetry.simulation.simulated_cluster import simulate


def noise(n, seed, period=None):
    rng = np.random.default_rng(seed)
    values = np.full((n, 60, 4), 0.25) + rng.normal(0, 0.05, (n, 60, 4))
    if period:
        values += 0.05 * np.sin(2 * np.pi * np.arange(60) / period + rng.uniform(0, 6, (n, 1)))[..., None]
    return values


def test_a_shift_is_its_own_marginal_distance():
    values = noise(10, 0)
    assert marginal_distance(values, values) == 0
    assert marginal_distance(values, values + np.array([0.1, 0, 0, 0])) == pytest.approx(0.1, abs=1e-3)


def test_twice_the_amplitude_is_six_decibels():
    values = noise(10, 1)
    assert spectral_distance_db(values, values) == 0
    assert spectral_distance_db(values, 2 * values) == pytest.approx(20 * np.log10(2), abs=1e-3)


def test_channels_that_never_move_have_no_spectral_distance():
    still = np.full((5, 60, 4), 0.25)
    assert spectral_distance_db(still, noise(5, 2)) == 0


def test_features_are_finite_even_where_nothing_moves():
    for seconds in (10, 60):
        assert np.isfinite(features(np.zeros((3, seconds, 4)))).all()


@pytest.mark.slow
def test_a_classifier_sees_a_hidden_period_and_nothing_where_nothing_is():
    jobs, rng = np.arange(80) // 4, np.random.default_rng(3)
    assert separability(noise(80, 4), noise(80, 5, period=7), jobs, jobs, rng) > 0.9
    assert separability(noise(80, 6), noise(80, 7), jobs, jobs, rng) == pytest.approx(0.5, abs=0.12)


@pytest.mark.slow
def test_a_simulation_passes_for_itself(signatures):
    settings = ClusterSettings(nodes=2, threads=4, hours=0.5, job_s=(150, 300), job_types=("np",))
    recorded, simulated = (_windows(simulate(settings, signatures, seed)) for seed in (1, 2))
    rows = {(row.job_type, row.anomaly): row for row in compare(recorded, simulated)}
    assert rows.keys() == {("np", ""), ("idle", "")}
    for row in rows.values():
        assert row.marginal_distance < 0.02
        assert row.recorded_means == pytest.approx(row.simulated_means, abs=0.02)
        assert row.auc == pytest.approx(0.5, abs=0.2)


def test_nothing_in_common_is_an_error_that_lists_both(signatures):
    recorded, simulated = (
        _windows(
            simulate(
                ClusterSettings(nodes=1, threads=2, hours=0.2, job_types=(name,), gap_s=1, idle_ratio=0), signatures, 0
            )
        )
        for name in ("np", "good-io")
    )
    recorded, simulated = (w.take(w.job_type != "idle") for w in (recorded, simulated))
    with pytest.raises(InputError, match="np recorded, good-io simulated"):
        compare(recorded, simulated)


def test_a_directory_without_recordings_is_named(tmp_path):
    with pytest.raises(InputError, match="no recordings found"):
        windows_of(tmp_path, 100)


def _windows(traces):
    return Windows.concat([cut(trace, 50) for trace in traces])
