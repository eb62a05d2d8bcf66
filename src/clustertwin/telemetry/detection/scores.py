"""What a detector says of every thread at a moment; higher is always stranger."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

#: What scores have one row a thread of.
COLUMNS = ("score", "surprise", "error", "embedding")

#: A view that can name what is wrong goes before those that only find it strange, once it is as sure as this.
NAMING, SURE = "distance", 4.5


@dataclass(frozen=True, slots=True)
class Scores:
    """One row a thread, in the moment's order. NaN is unknown: masked, or a job's edge inside the window."""

    score: NDArray[np.float32]  # (thread,) -log10 of how often a normal thread looks this strange
    surprise: NDArray[np.float32]  # (thread, view) the same for each view alone; NaN where it has nothing to say
    views: tuple[str, ...]
    error: NDArray[np.float32]  # (thread,) mean squared reconstruction error
    embedding: NDArray[np.float32]  # (thread, latent)

    def __len__(self) -> int:
        return len(self.score)

    def take(self, rows: NDArray[np.intp] | slice) -> Scores:
        """Those of some threads."""
        return replace(self, **{name: getattr(self, name)[rows] for name in COLUMNS})

    def spoke(self, thread: int) -> str:
        """The view that names what is wrong with this thread, else the one that found it strangest; empty: none."""
        surprise = self.surprise[thread]
        if np.isnan(surprise).all():
            return ""
        if NAMING in self.views and surprise[self.views.index(NAMING)] > SURE:
            return NAMING
        return self.views[int(np.nanargmax(surprise))]
