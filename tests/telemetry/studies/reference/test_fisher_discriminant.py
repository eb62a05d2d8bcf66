import numpy as np
import pytest

from clustertwin.core.channels import CPU
from clustertwin.core.traces import Windows
from clustertwin.telemetry.studies.reference.fisher_discriminant import discriminant_directions


def windows(job: np.ndarray) -> Windows:
    n, empty = len(job), np.full(len(job), "")
    values = np.zeros((n, 1, 4), np.float32)
    return Windows(
        CPU, values, np.ones((n, 1), bool), np.arange(n), empty, np.zeros(n, np.int32), job, empty, empty, empty, empty
    )


@pytest.fixture
def jobs():
    rng = np.random.default_rng(0)
    number = np.repeat(np.arange(20), 30)
    level = rng.normal(size=20)[number]
    noise = rng.normal(size=(600, 3))
    # Jobs differ only in the first coordinate, hidden by the noise of the third; the second is strong noise.
    z = np.stack([level + 5 * noise[:, 2], 50 * noise[:, 1], noise[:, 2] + 0.01 * noise[:, 0]], axis=1)
    return z, windows(number.astype(str)), level


def test_the_direction_in_which_jobs_differ_is_found_despite_noise(jobs):
    z, held, level = jobs
    directions = discriminant_directions(z, held)
    assert directions.shape == (3, 1)
    assert abs(np.corrcoef((z @ directions)[:, 0], level)[0, 1]) > 0.99
    assert abs(np.corrcoef(z[:, 0], level)[0, 1]) < 0.3, "a single coordinate does not show it"


def test_the_variance_within_jobs_is_one_along_each_direction(jobs):
    z, held, level = jobs
    projected = (z @ discriminant_directions(z, held))[:, 0]
    within = [projected[level == value].var(ddof=1) for value in np.unique(level)]
    assert np.mean(within) == pytest.approx(1, rel=0.05)


def test_threads_without_a_job_are_ignored(jobs):
    z, held, _ = jobs
    idle = windows(np.concatenate([held.job, np.full(50, "")]))
    with_idle = np.concatenate([z, np.full((50, 3), 1e3)])
    np.testing.assert_allclose(discriminant_directions(with_idle, idle), discriminant_directions(z, held))
