"""What a detector says of every thread at a moment; higher is always stranger."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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

    def spoke(self, thread: int) -> str:
        """The view that found this thread strangest; empty where none knows."""
        surprise = self.surprise[thread]
        return "" if np.isnan(surprise).all() else self.views[int(np.nanargmax(surprise))]
