"""UMAP of the embeddings: normal threads are fitted once, in the background -> a map on which later threads are placed.

UMAP has no formula for a new point. A thread is placed between the nearest fitted threads. So a picture that is drawn
every two seconds needs no new fit, and only the points move.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require

LEAST, MOST = 30, 1500  # threads to fit; fewer than 30 have no visible structure
_NEIGHBOURS = 5


@dataclass(frozen=True, slots=True)
class UmapProjection:
    model: str
    fitted: NDArray[np.float32]  # (n, latent)
    places: NDArray[np.float32]  # (n, 2)
    explained: tuple[float, ...] = ()  # UMAP's axes have no share of the variance

    def place(self, embedding: NDArray[np.float32]) -> NDArray[np.float64]:
        """(n, latent) -> (n, 2): the mean of the nearest fitted threads, weighted by the inverse distance."""
        squares = np.einsum("nl,nl->n", embedding, embedding)[:, None] + (self.fitted**2).sum(1)
        distance = np.sqrt(np.maximum(squares - 2 * embedding @ self.fitted.T, 0))  # (n, fitted)
        nearest = np.argpartition(distance, min(_NEIGHBOURS, len(self.fitted)) - 1, axis=1)[:, :_NEIGHBOURS]
        weight = 1 / (np.take_along_axis(distance, nearest, 1) + 1e-6)
        return np.asarray((weight[:, :, None] * self.places[nearest]).sum(1) / weight.sum(1)[:, None], np.float64)


def fit(model: str, embedding: NDArray[np.float32], seed: int = 0) -> UmapProjection:
    """(n, latent) -> a map; fitted to a random sample if there are many threads."""
    rng = np.random.default_rng(seed)
    sample = rng.choice(len(embedding), min(len(embedding), MOST), replace=False)
    known = embedding[np.sort(sample)]
    umap: Any = require("umap", "umap")
    fitted = umap.UMAP(n_neighbors=min(15, len(known) - 1), random_state=seed, n_jobs=1).fit(known)
    return UmapProjection(model, known, np.asarray(fitted.embedding_, np.float32))


class UmapProjections:
    """The map of the model in service. It is fitted when someone first asks for it."""

    def __init__(self) -> None:
        self._fitting: tuple[str, Future[UmapProjection]] | None = None  # model, its map

    def of(self, model: str, embedding: NDArray[np.float32]) -> tuple[UmapProjection | None, str]:
        """The map, or the reason why there is none yet."""
        if self._fitting is None or self._fitting[0] != model:
            if len(embedding) < LEAST:
                return None, f"UMAP needs {LEAST} normal threads; there are {len(embedding)}"
            self._fitting = model, _fit_in_background(model, embedding)
        future = self._fitting[1]
        if not future.done():
            return None, "UMAP is being fitted; until then the axes are principal components"
        error = future.exception()
        return (None, f"UMAP: {error}") if error else (future.result(), "")


def _fit_in_background(model: str, embedding: NDArray[np.float32]) -> Future[UmapProjection]:
    """Use a daemon thread: the service can stop without waiting for the fit."""
    future: Future[UmapProjection] = Future()

    def work() -> None:
        try:
            future.set_result(fit(model, embedding))
        except Exception as error:  # show any error of UMAP on the page
            future.set_exception(error)

    Thread(target=work, name="umap", daemon=True).start()
    return future
