"""How often to score: how long scoring took -> the seconds until the next, by a rule that is shown.

Scoring may use half of its stride. Where it needs more, the stride goes up the ladder at once; where it would fit
the next lower step with room to spare ten times in a row, it goes down by one.
"""

from __future__ import annotations

LADDER_S = (1, 2, 5, 10, 20, 30)
SHARE = 0.5
PATIENCE = 10


class Stride:
    """`seconds` is the stride now, `why` the rule that made it."""

    def __init__(self, wanted_s: int) -> None:
        self.wanted_s = self.seconds = wanted_s
        self.why = "as configured"
        self._quiet = 0

    def took(self, scoring_s: float) -> None:
        """Hear how long the last scoring took, in seconds of the feed's clock."""
        steps = sorted({self.wanted_s, *(step for step in LADDER_S if step > self.wanted_s)})
        fits = next((step for step in steps if scoring_s <= SHARE * step), steps[-1])
        if fits > self.seconds:
            self.seconds, self._quiet = fits, 0
            self.why = f"scoring took {scoring_s:.2g} s, more than half of the stride before"
        lower = max((step for step in steps if step < self.seconds), default=self.seconds)
        # Room to spare: a stride must not go down only to come up again.
        self._quiet = self._quiet + 1 if lower < self.seconds and scoring_s <= 0.6 * SHARE * lower else 0
        if self._quiet >= PATIENCE:
            self.seconds, self._quiet = lower, 0
            self.why = "as configured" if lower == self.wanted_s else f"scoring took {scoring_s:.2g} s of late"
