"""The scores of every thread at one moment. A higher score is always more unusual."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

#: The fields of `Scores` that have one row per thread.
COLUMNS = ("score", "surprise", "error", "embedding")

#: This view can name the fault. It is reported before the other views once its surprise is above `NAMING_ABOVE`.
NAMING_VIEW, NAMING_ABOVE = "distance", 4.5


@dataclass(frozen=True, slots=True)
class Scores:
    """One row per thread, in the moment's order. NaN is unknown: masked, or a job started or ended in the window."""

    score: NDArray[np.float32]  # (thread,) -log10 of the share of normal threads that look at least this unusual
    surprise: NDArray[np.float32]  # (thread, view) the same for each view alone; NaN where it cannot tell
    views: tuple[str, ...]
    error: NDArray[np.float32]  # (thread,) mean squared reconstruction error
    embedding: NDArray[np.float32]  # (thread, latent)

    def __len__(self) -> int:
        return len(self.score)

    def take(self, rows: NDArray[np.intp] | slice) -> Scores:
        """The scores of these threads."""
        return replace(self, **{name: getattr(self, name)[rows] for name in COLUMNS})

    def deciding_view(self, thread: int) -> str:
        """The view to report for a thread: the naming view if it is sure, else the one with the highest surprise.

        Empty if no view knows the thread.
        """
        surprise = self.surprise[thread]
        if np.isnan(surprise).all():
            return ""
        if NAMING_VIEW in self.views and surprise[self.views.index(NAMING_VIEW)] > NAMING_ABOVE:
            return NAMING_VIEW
        return self.views[int(np.nanargmax(surprise))]
