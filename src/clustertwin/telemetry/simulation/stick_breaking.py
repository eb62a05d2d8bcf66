"""The stick-breaking transform: ratios of four channels (…, 4) <-> shares (…, 3), and shares -> whole kernel ticks.

The first share is one channel's part of the second, the next is another channel's part of the remainder, and so on.
Each share can take any value in [0, 1] independently of the others, and the four ratios still sum to one. Each share
can therefore have its own marginal distribution. The best order of the channels differs from job to job.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
from numpy.typing import NDArray

TICKS = 100  # the kernel counts a second in USER_HZ ticks

Order = tuple[int, int, int, int]  # channels in the order of their shares; the last one gets the remainder
#: Every order. Swapping the last two channels changes nothing, so only one of each pair is listed.
ORDERS: tuple[Order, ...] = tuple((a, b, c, d) for a, b, c, d in permutations(range(4)) if c < d)


def to_shares(ratios: NDArray[np.floating], order: Order) -> NDArray[np.float64]:
    """(…, channel) -> (…, share); NaN where the remainder is empty."""
    ordered = np.asarray(ratios, np.float64)[..., order]
    # The remainder is a sum of ratios, not one minus a sum: recorded ratios are rounded.
    remainder = np.cumsum(ordered[..., ::-1], axis=-1)[..., :0:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        # Half a tick or less is a rounding error.
        return np.clip(ordered[..., :3] / np.where(remainder > 0.5 / TICKS, remainder, np.nan), 0, 1)


def to_ticks(shares: NDArray[np.floating], order: Order) -> NDArray[np.uint8]:
    """(…, share) -> (…, channel) whole ticks that sum to `TICKS`."""
    ticks = np.empty((*shares.shape[:-1], 4), np.uint8)
    remainder = np.full(shares.shape[:-1], TICKS, np.float32)
    for i, channel in enumerate(order[:3]):
        part = np.rint(shares[..., i] * remainder)
        ticks[..., channel] = part
        remainder -= part
    ticks[..., order[3]] = remainder
    return ticks
