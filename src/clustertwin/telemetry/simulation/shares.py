"""Three nested shares for the four channels: ratios (…, 4) <-> shares (…, 3), and shares -> whole kernel ticks.

The first share is a channel's part of the second, the next another channel's part of what is left, and so on.
Each may lie anywhere in [0, 1] whatever the others are, and the four ratios still sum to one: so each can have a
distribution of its own. In which order the channels are best taken differs from job to job.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
from numpy.typing import NDArray

TICKS = 100  # the kernel counts a second in USER_HZ ticks

Order = tuple[int, int, int, int]  # channels as they are taken; the last gets what is left
#: Every order but for the last two, who split what is left either way.
ORDERS: tuple[Order, ...] = tuple((a, b, c, d) for a, b, c, d in permutations(range(4)) if c < d)


def to_shares(ratios: NDArray[np.floating], order: Order) -> NDArray[np.float64]:
    """(…, channel) -> (…, share); NaN where a share has nothing to divide."""
    taken = np.asarray(ratios, np.float64)[..., order]
    # What is left is summed, not subtracted from one: recorded ratios are rounded.
    left = np.cumsum(taken[..., ::-1], axis=-1)[..., :0:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        # Half a tick and less is rounding, not work.
        return np.clip(taken[..., :3] / np.where(left > 0.5 / TICKS, left, np.nan), 0, 1)


def to_ticks(shares: NDArray[np.floating], order: Order) -> NDArray[np.uint8]:
    """(…, share) -> (…, channel) whole ticks that sum to `TICKS`."""
    ticks = np.empty((*shares.shape[:-1], 4), np.uint8)
    left = np.full(shares.shape[:-1], TICKS, np.float32)
    for i, channel in enumerate(order[:3]):
        taken = np.rint(shares[..., i] * left)
        ticks[..., channel] = taken
        left -= taken
    ticks[..., order[3]] = left
    return ticks
