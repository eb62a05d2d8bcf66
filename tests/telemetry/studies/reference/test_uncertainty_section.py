import numpy as np
import pytest
import torch

from clustertwin.core.channels import CPU
from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.telemetry.models import find
from clustertwin.telemetry.models.contract import Shape
from clustertwin.telemetry.studies.reference.study_data import StudyData
from clustertwin.telemetry.studies.reference.uncertainty_section import measure_uncertainty, uncertainty_section


def data(noise: float) -> StudyData:
    """Threads that are half busy, with noise of this standard deviation in user and other."""
    rng = np.random.default_rng(0)
    values = np.zeros((8, 200, 4), np.float32)
    values[..., 0] = 0.5 + rng.normal(0, noise, values.shape[:2])
    values[..., 3] = 1 - values[..., 0]
    cpus = tuple(range(8))
    span = JobSpan("1", "n1", cpus, 0.0, 200.0, "np")
    campaign = (Trace("n1", cpus, 0, CPU, values, np.ones((8, 200), bool), (span,)),)
    return StudyData("test", (campaign,), (campaign,), (campaign,))


def variational(sigma: float):
    """A model that reconstructs every window by the mean of the data, without spread."""
    torch.manual_seed(0)
    config, network = find("vae")
    model = network(config(shape=Shape(CPU, 100), sigma=sigma)).eval()
    model.prior.copy_(torch.tensor([0.5, 1e-9, 1e-9, 0.5]).log())
    torch.nn.init.zeros_(model.widen.weight)
    return model


def test_error_bars_of_the_true_noise_cover_as_much_as_they_state():
    model = variational(sigma=0.1)
    model.decode = lambda z: torch.zeros(len(z), 100, 4)
    held = measure_uncertainty(model, data(noise=0.1).windows("test")).held.mean(axis=0)
    # User and other carry the noise; system and iowait are constant and always within the bar.
    assert held == pytest.approx([(1 + level) / 2 for level in (0.5, 0.8, 0.95)], abs=0.02)


def test_draws_without_spread_cover_nothing_that_varies():
    model = variational(sigma=0.1)
    model.decode = lambda z: torch.zeros(len(z), 100, 4)
    measured = measure_uncertainty(model, data(noise=0.1).windows("test"))
    assert measured.held_by_draws.max() < 0.51
    assert measured.spread.max() < 1e-12


def test_another_model_is_refused_with_the_remedy():
    with pytest.raises(SettingsError, match="vae"):
        uncertainty_section(data(noise=0.1), None)


def test_the_section_states_the_coverage_of_normal_seconds():
    section = uncertainty_section(data(noise=0.01), variational(sigma=0.05))
    assert "% of the normal seconds" in section.text
    assert [row[0] for row in section.tables[0].rows] == ["all normal windows"]
