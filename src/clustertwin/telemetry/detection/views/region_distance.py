"""How near threads have come to known-wrong places: embeddings -> distances, and how seldom normal ones come so near.

The reference study's alarm by distance: a job that drifts towards the place where bad I/O lies has gone wrong, however
slowly it went there. A place among normal threads speaks only of what comes nearer to it than they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.telemetry.detection.views.p_value import Tail, fit_tail

_LEAST = 1e-6  # no distance is less: its logarithm must be a number


@dataclass(frozen=True, slots=True)
class Regions:
    """Where jobs that went wrong lie in a model's embedding."""

    names: tuple[str, ...]  # what went wrong
    centre: NDArray[np.float32]  # (region, latent)

    def apart(self, embedding: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, latent) -> (n, region) distances."""
        squares = np.einsum("nl,nl->n", embedding, embedding)[:, None] + (self.centre**2).sum(1)
        return np.sqrt(np.maximum(squares - 2 * embedding @ self.centre.T, _LEAST**2))


@dataclass(frozen=True, slots=True)
class Clearance:
    """How near to each region normal threads of one kind come."""

    kept: NDArray[np.float32]  # (region,) the distance that all but a few of them keep
    tail: Tail  # of the nearness of all of them

    def surprise(self, apart: NDArray[np.float32]) -> NDArray[np.float64]:
        """(n, region) distances -> (n,) -log10 of how often a normal thread is this near to any."""
        return self.tail.surprise(nearness(apart, self.kept).max(1))


@dataclass(frozen=True, slots=True)
class Near:
    """The region that some threads have come nearest to, for what normal threads keep from it."""

    name: str
    distance: float  # of the nearest of them
    kept: float  # by all but a few normal threads


def nearness(apart: NDArray[np.float32], kept: NDArray[np.float32]) -> NDArray[np.float64]:
    """(n, region) above 0 where a thread is nearer than normal ones come; by orders of magnitude, not by units."""
    return np.log(kept.astype(np.float64)) - np.log(apart)


def fit_clearance(apart: NDArray[np.float32], rate: float) -> Clearance:
    """Distances (n, region) of normal threads -> how near they come; `rate` of them come nearer than what is kept."""
    kept = np.quantile(apart, rate, axis=0).astype(np.float32)
    return Clearance(kept, fit_tail(nearness(apart, kept).max(1)))


def nearest(regions: Regions, apart: NDArray[np.float32], judges: Sequence[Clearance]) -> Near | None:
    """(n, region) distances of some threads -> the region that one of them is nearest to; None where nobody can say."""
    if not judges or not apart.size:
        return None
    kept = np.min([judge.kept for judge in judges], axis=0)
    thread, region = np.unravel_index(int(nearness(apart, kept).argmax()), apart.shape)
    return Near(regions.names[region], float(apart[thread, region]), float(kept[region]))
