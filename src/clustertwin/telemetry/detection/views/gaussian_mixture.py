"""What is usual: features of normal threads -> a mixture of Gaussians, and how unlikely another thread is under it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require

Array = NDArray[np.float32]

SAMPLE = 6_000  # windows a mixture is fitted to; more change nothing but the time
WINDOWS_EACH = 40  # a component must have this many to stand on
_FLOOR = 0.02  # a feature that never changes is not blown up to one that tells everything
_ROWS = 512  # at a time, so that what lies between the products stays in the cache
_REGULAR = 1e-2  # of a whitened feature's variance, in every direction


@dataclass(frozen=True, slots=True)
class Density:
    """A mixture over whitened features; every component is one usual way to spend the time."""

    centre: Array  # (feature,)
    scale: Array  # (feature,)
    log_weight: Array  # (component,) with the Gaussians' constants
    mean: Array  # (component, feature)
    whiten: Array  # (component, feature, feature) x @ whiten has unit covariance
    ratios: Array  # (component, channel) the mean ratios of the threads it stands for

    def strangeness(self, features: Array) -> NDArray[np.float64]:
        """(n,) minus the log-likelihood."""
        each = self._each(features)
        top = each.max(1, initial=-np.inf)
        return np.asarray(-(top + np.log(np.exp(each - top[:, None]).sum(1))), np.float64)

    def expected(self, features: Array) -> Array:
        """(n, channel) the mean ratios of the nearest usual way."""
        return self.ratios[self._each(features).argmax(1)]

    def _each(self, features: Array) -> Array:
        """(n, component) log-likelihoods."""
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


def fit_density(features: Array, ratios: Array, components: int, seed: int) -> Density:
    """Features (n, feature) and mean ratios (n, channel) of normal threads -> their density."""
    if len(features) > SAMPLE:
        chosen = np.random.default_rng(seed).choice(len(features), SAMPLE, replace=False)
        features, ratios = features[chosen], ratios[chosen]
    centre, scale = features.mean(0), features.std(0) + np.float32(_FLOOR)
    whitened = (features - centre) / scale
    mixture: Any = require("sklearn.mixture", "models").GaussianMixture(
        max(min(components, len(features) // WINDOWS_EACH), 1),
        reg_covar=_REGULAR,
        random_state=seed,
        max_iter=60,
        tol=1e-2,
    )
    mixture.fit(whitened.astype(np.float64))
    share = mixture.predict_proba(whitened.astype(np.float64))  # (n, component)
    share /= share.sum(0)
    whiten = mixture.precisions_cholesky_
    log_det = np.log(np.diagonal(whiten, axis1=1, axis2=2)).sum(1)
    constant = log_det - 0.5 * features.shape[1] * np.log(2 * np.pi)
    arrays = (np.log(mixture.weights_) + constant, mixture.means_, whiten, share.T @ ratios)
    return Density(centre, scale, *(np.asarray(array, np.float32) for array in arrays))
