from __future__ import annotations

import numpy as np

from clustertwin.telemetry.detection.views.gaussian_mixture import fit_mixture


def _two_behaviours(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    busy = np.arange(n) % 2
    features = np.stack([busy * 4.0, -busy * 2.0], 1) + rng.normal(0, 0.2, (n, 2))
    return features.astype(np.float32), np.stack([busy, 1 - busy], 1).astype(np.float32)


def test_new_behaviour_is_less_likely_than_any_known_one():
    features, ratios = _two_behaviours(2000, 0)
    mixture = fit_mixture(features, ratios, components=2, seed=0)
    between = np.array([[2.0, -1.0]], np.float32)
    assert (
        mixture.negative_log_likelihood(between)[0]
        > mixture.negative_log_likelihood(_two_behaviours(500, 1)[0]).max() + 10
    )


def test_agrees_with_a_mixture_written_out():
    from scipy.special import logsumexp  # late: only this test needs it
    from scipy.stats import multivariate_normal

    features, ratios = _two_behaviours(400, 2)
    mixture = fit_mixture(features, ratios, components=2, seed=0)
    x = (features[:50] - mixture.centre) / mixture.scale
    each = []
    for k in range(2):
        covariance = np.linalg.inv(mixture.whiten[k].astype(float) @ mixture.whiten[k].T.astype(float))
        gaussian = multivariate_normal(mixture.mean[k], covariance)
        log_weight = mixture.log_weight[k] + 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
        each.append(log_weight + gaussian.logpdf(x))
    np.testing.assert_allclose(
        mixture.negative_log_likelihood(features[:50]), -logsumexp(each, axis=0), rtol=1e-3, atol=1e-3
    )


def test_expects_the_ratios_of_the_most_likely_component():
    features, ratios = _two_behaviours(1000, 3)
    mixture = fit_mixture(features, ratios, components=2, seed=0)
    np.testing.assert_allclose(mixture.expected_ratios(features[:2]), [[0, 1], [1, 0]], atol=1e-3)


def test_the_same_seed_gives_the_same_mixture():
    features, ratios = _two_behaviours(1000, 4)
    first, second = (fit_mixture(features, ratios, components=4, seed=7) for _ in range(2))
    np.testing.assert_array_equal(first.whiten, second.whiten)
