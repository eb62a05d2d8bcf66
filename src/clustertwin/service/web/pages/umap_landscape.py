"""UMAP's picture of embeddings: threads fitted once, in the background -> a map on which later ones find their place.

UMAP has no formula for a new point. A thread is placed between the fitted ones that are nearest to it in the embedding,
so that a picture that is drawn every two seconds costs no fit, and only points move.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require

LEAST, MOST = 30, 1500  # threads to fit; with fewer there is no shape to find
_NEIGHBOURS = 5


@dataclass(frozen=True, slots=True)
class Landscape:
    model: str
    known: NDArray[np.float32]  # (n, latent)
    places: NDArray[np.float32]  # (n, 2)
    told: tuple[float, ...] = ()  # UMAP's directions tell no part of a variance

    def place(self, embedding: NDArray[np.float32]) -> NDArray[np.float64]:
        """(n, latent) -> (n, 2): the mean of its nearest, the nearer the heavier."""
        squares = np.einsum("nl,nl->n", embedding, embedding)[:, None] + (self.known**2).sum(1)
        apart = np.sqrt(np.maximum(squares - 2 * embedding @ self.known.T, 0))  # (n, known)
        near = np.argpartition(apart, min(_NEIGHBOURS, len(self.known)) - 1, axis=1)[:, :_NEIGHBOURS]
        weight = 1 / (np.take_along_axis(apart, near, 1) + 1e-6)
        return np.asarray((weight[:, :, None] * self.places[near]).sum(1) / weight.sum(1)[:, None], np.float64)


def fit(model: str, embedding: NDArray[np.float32], seed: int = 0) -> Landscape:
    """(n, latent) -> a map; of very many, some are drawn."""
    rng = np.random.default_rng(seed)
    some = rng.choice(len(embedding), min(len(embedding), MOST), replace=False)
    known = embedding[np.sort(some)]
    umap: Any = require("umap", "umap")
    fitted = umap.UMAP(n_neighbors=min(15, len(known) - 1), random_state=seed, n_jobs=1).fit(known)
    return Landscape(model, known, np.asarray(fitted.embedding_, np.float32))


class Landscapes:
    """The map of the model in service, once somebody has asked for one and it is fitted."""

    def __init__(self) -> None:
        self._asked: tuple[str, Future[Landscape]] | None = None

    def of(self, model: str, embedding: NDArray[np.float32]) -> tuple[Landscape | None, str]:
        """The map, or why there is none yet."""
        if self._asked is None or self._asked[0] != model:
            if len(embedding) < LEAST:
                return None, f"UMAP needs {LEAST} threads that are calm; there are {len(embedding)}"
            self._asked = model, _begun(model, embedding)
        if not self._asked[1].done():
            return None, "UMAP is being fitted; until then principal components"
        refused = self._asked[1].exception()
        return (None, f"UMAP: {refused}") if refused else (self._asked[1].result(), "")


def _begun(model: str, embedding: NDArray[np.float32]) -> Future[Landscape]:
    """In a daemon's thread: a service that is told to stop does not wait for a picture."""
    coming: Future[Landscape] = Future()

    def work() -> None:
        try:
            coming.set_result(fit(model, embedding))
        except Exception as error:  # whatever UMAP does not like is a line of the page
            coming.set_exception(error)

    Thread(target=work, name="umap", daemon=True).start()
    return coming
