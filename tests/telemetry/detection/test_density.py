from __future__ import annotations

import numpy as np

from clustertwin.telemetry.detection.views.gaussian_mixture import fit_density


def _two_ways(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    busy = np.arange(n) % 2
    features = np.stack([busy * 4.0, -busy * 2.0], 1) + rng.normal(0, 0.2, (n, 2))
    return features.astype(np.float32), np.stack([busy, 1 - busy], 1).astype(np.float32)


def test_what_was_never_seen_is_stranger_than_anything_that_was():
    features, ratios = _two_ways(2000, 0)
    density = fit_density(features, ratios, components=2, seed=0)
    between = np.array([[2.0, -1.0]], np.float32)
    assert density.strangeness(between)[0] > density.strangeness(_two_ways(500, 1)[0]).max() + 10


def test_agrees_with_a_mixture_written_out():
    from scipy.special import logsumexp  # late: only this test needs it
    from scipy.stats import multivariate_normal

    features, ratios = _two_ways(400, 2)
    density = fit_density(features, ratios, components=2, seed=0)
    x = (features[:50] - density.centre) / density.scale
    each = []
    for k in range(2):
        covariance = np.linalg.inv(density.whiten[k].astype(float) @ density.whiten[k].T.astype(float))
        gaussian = multivariate_normal(density.mean[k], covariance)
        log_weight = density.log_weight[k] + 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
        each.append(log_weight + gaussian.logpdf(x))
    np.testing.assert_allclose(density.strangeness(features[:50]), -logsumexp(each, axis=0), rtol=1e-3, atol=1e-3)


def test_expects_the_ratios_of_the_nearest_usual_way():
    features, ratios = _two_ways(1000, 3)
    density = fit_density(features, ratios, components=2, seed=0)
    np.testing.assert_allclose(density.expected(features[:2]), [[0, 1], [1, 0]], atol=1e-3)


def test_the_same_seed_gives_the_same_density():
    features, ratios = _two_ways(1000, 4)
    first, second = (fit_density(features, ratios, components=4, seed=7) for _ in range(2))
    np.testing.assert_array_equal(first.whiten, second.whiten)
