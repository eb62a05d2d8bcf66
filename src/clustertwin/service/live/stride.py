"""How often to score: the duration of the last scoring -> the stride, and the reason for it.

Scoring may use half of the stride. If it needs more, the stride is raised at once to a step that fits. If the next
lower step would have fitted ten times in a row, with a margin, the stride is lowered by one step.
"""

from __future__ import annotations

DEFAULT_S = 5
LADDER_S = (1, 2, 5, 10, 20, 30)
SHARE = 0.5
PATIENCE = 10


class Stride:
    """`seconds` is the current stride, and `why` the reason for it."""

    def __init__(self, wanted_s: int) -> None:
        self.wanted_s = self.seconds = wanted_s
        self.why = "as configured"
        self._fitting = 0  # how often in a row the next lower step would have fitted

    def update(self, scoring_s: float) -> None:
        """Adapt to the duration of the last scoring, in seconds of the feed's clock."""
        steps = sorted({self.wanted_s, *(step for step in LADDER_S if step > self.wanted_s)})
        fits = next((step for step in steps if scoring_s <= SHARE * step), steps[-1])
        if fits > self.seconds:
            self.seconds, self._fitting = fits, 0
            self.why = f"scoring took {scoring_s:.2g} s, more than half of the previous stride"
        lower = max((step for step in steps if step < self.seconds), default=self.seconds)
        # The margin keeps the stride from going down and up again.
        self._fitting = self._fitting + 1 if lower < self.seconds and scoring_s <= 0.6 * SHARE * lower else 0
        if self._fitting >= PATIENCE:
            self.seconds, self._fitting = lower, 0
            self.why = "as configured" if lower == self.wanted_s else f"the last scoring took {scoring_s:.2g} s"
