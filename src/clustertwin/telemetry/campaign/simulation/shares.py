"""Three nested shares for the four channels: ratios (…, 4) <-> shares (…, 3), and shares -> whole kernel ticks.

Of a second, `other` is the part not worked; of what is left, `wait` is the part in I/O wait; of what is left
then, `system` is the part in the kernel. Each share may lie anywhere in [0, 1] whatever the others are, and the
four ratios still sum to one: so each can have a distribution of its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TICKS = 100  # the kernel counts a second in USER_HZ ticks
SHARES = ("other", "wait", "system")


def to_shares(ratios: NDArray[np.floating]) -> NDArray[np.float64]:
    """(…, channel) -> (…, share); NaN where a share has nothing to divide."""
    user, system, iowait, other = np.moveaxis(np.asarray(ratios, np.float64), -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Half a tick and less is rounding, not work.
        left = np.where(1 - other > 0.5 / TICKS, 1 - other, np.nan)
        worked = np.where(user + system > 0.5 / TICKS, user + system, np.nan)
        return np.clip(np.stack([other, iowait / left, system / worked], axis=-1), 0, 1)


def to_ticks(shares: NDArray[np.floating]) -> NDArray[np.uint8]:
    """(…, share) -> (…, channel) whole ticks that sum to `TICKS`."""
    ticks = np.empty((*shares.shape[:-1], 4), np.uint8)
    left = np.float32(TICKS)
    other = np.rint(shares[..., 0] * left)
    left = left - other
    iowait = np.rint(shares[..., 1] * left)
    left = left - iowait
    system = np.rint(shares[..., 2] * left)
    for channel, value in enumerate((left - system, system, iowait, other)):
        ticks[..., channel] = value
    return ticks
