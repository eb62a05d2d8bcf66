"""A Gaussian mixture of normal behaviour: features of normal threads -> the likelihood of other threads under it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require

Array = NDArray[np.float32]

SAMPLE = 6_000  # windows in a fit; more take longer and give the same mixture
WINDOWS_PER_COMPONENT = 40  # a component needs at least this many
_SCALE_FLOOR = 0.02  # keeps a constant feature from dominating after scaling
_ROWS = 512  # threads per step, so that intermediate products stay in the cache
_REGULARISATION = 1e-2  # added to the variance in every direction


@dataclass(frozen=True, slots=True)
class GaussianMixture:
    """A mixture over scaled features. Each component stands for one normal behaviour."""

    centre: Array  # (feature,)
    scale: Array  # (feature,)
    log_weight: Array  # (component,) including the Gaussians' constants
    mean: Array  # (component, feature)
    whiten: Array  # (component, feature, feature) x @ whiten has unit covariance
    ratios: Array  # (component, channel) the mean ratios of its threads

    def negative_log_likelihood(self, features: Array) -> NDArray[np.float64]:
        """(n,)"""
        each = self._log_likelihoods(features)
        top = each.max(1, initial=-np.inf)
        return np.asarray(-(top + np.log(np.exp(each - top[:, None]).sum(1))), np.float64)

    def expected_ratios(self, features: Array) -> Array:
        """(n, channel) the mean ratios of the most likely component."""
        return self.ratios[self._log_likelihoods(features).argmax(1)]

    def _log_likelihoods(self, features: Array) -> Array:
        """(n, component)"""
        components, inside = self.mean.shape
        whiten = self.whiten.transpose(1, 0, 2).reshape(inside, -1)  # all components side by side
        mean = np.einsum("kf,kfg->kg", self.mean, self.whiten, dtype=np.float64).reshape(-1).astype(np.float32)
        own = np.repeat(np.eye(components, dtype=np.float32), inside, axis=0) * np.float32(-0.5)
        each = np.empty((len(features), components), np.float32)
        for start in range(0, len(features), _ROWS):
            rows = slice(start, start + _ROWS)
            y = (features[rows] - self.centre) / self.scale @ whiten - mean  # (row, component * feature)
            each[rows] = self.log_weight + np.square(y, out=y) @ own
        return each


def fit_mixture(features: Array, ratios: Array, components: int, seed: int) -> GaussianMixture:
    """Fit to the features (n, feature) and mean ratios (n, channel) of normal threads."""
    if len(features) > SAMPLE:
        chosen = np.random.default_rng(seed).choice(len(features), SAMPLE, replace=False)
        features, ratios = features[chosen], ratios[chosen]
    centre, scale = features.mean(0), features.std(0) + np.float32(_SCALE_FLOOR)
    scaled = ((features - centre) / scale).astype(np.float64)
    mixture: Any = require("sklearn.mixture", "models").GaussianMixture(
        max(min(components, len(features) // WINDOWS_PER_COMPONENT), 1),
        reg_covar=_REGULARISATION,
        random_state=seed,
        max_iter=60,
        tol=1e-2,
    )
    mixture.fit(scaled)
    responsibility = mixture.predict_proba(scaled)  # (n, component)
    responsibility /= responsibility.sum(0)
    whiten = mixture.precisions_cholesky_
    log_det = np.log(np.diagonal(whiten, axis1=1, axis2=2)).sum(1)
    constant = log_det - 0.5 * features.shape[1] * np.log(2 * np.pi)
    arrays = (np.log(mixture.weights_) + constant, mixture.means_, whiten, responsibility.T @ ratios)
    return GaussianMixture(centre, scale, *(np.asarray(array, np.float32) for array in arrays))
