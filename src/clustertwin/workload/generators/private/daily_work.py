"""How much work is submitted on each day: released load -> an endless sequence of days.

Busy and quiet days and weeks are a public assumption, because a week of a log cannot be released at a useful accuracy.
So is the feedback: users wait for their results, and a machine that is full of work receives less. Over some weeks the
work of all days adds up to the released load.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

WEEK_SPREAD = 0.45  # standard deviation of the logarithm of a week's load
WEEK_MEMORY = 0.5  # correlation of that logarithm with the week before
DAY_SPREAD = 0.2  # the same for days
PATIENCE = 5.0  # with a day of work in the queue, users submit 1 / (1 + PATIENCE) of their usual work
BALANCE = 0.05  # the share of the surplus so far that is missing today
LEAST_SHARE = 0.05  # of the plan: some work arrives on every day


@dataclass(slots=True)
class DailyWork:
    """The plan of each day, the queue, and the balance of what was submitted. Work is in days of the whole machine."""

    load: float
    weekend_share: float  # work of a day of the weekend over that of a weekday
    first_weekday: int  # 0 is Monday
    rng: np.random.Generator
    surplus: float = 0.0
    queued: float = 0.0

    def days(self) -> Iterator[tuple[float, bool]]:
        """The work to submit on each day, and whether it is a day of the weekend. Report it with `submitted`."""
        weekday_load = self.load * 7 / (5 + 2 * self.weekend_share)
        day, level = self.first_weekday, float(self.rng.normal())
        while True:
            weekend = day % 7 >= 5
            busy = WEEK_SPREAD * level + DAY_SPREAD * float(self.rng.normal()) - (WEEK_SPREAD**2 + DAY_SPREAD**2) / 2
            planned = weekday_load * (self.weekend_share if weekend else 1.0) * float(np.exp(busy))
            wanted = planned / (1 + PATIENCE * self.queued) - BALANCE * self.surplus * planned / self.load
            yield max(wanted, LEAST_SHARE * planned), weekend
            day += 1
            if day % 7 == 0:
                level = WEEK_MEMORY * level + float(np.sqrt(1 - WEEK_MEMORY**2) * self.rng.normal())

    def submitted(self, work: float) -> None:
        self.surplus += work - self.load
        self.queued = max(self.queued + work - 1.0, 0.0)
