"""How much a person may add to the database in an hour: a name and a number of bytes -> nothing, or a 429.

Verdicts, maintenance windows and silences are stored with an entry of the audit log. Without a budget, a script could
fill the disk, and push the older entries out of the log.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

from fastapi import HTTPException

from clustertwin.core.durations import HOUR_S

HOUR_BYTES = 100_000_000  # 10,000 verdicts at once with a comment of 4,000 letters are 90 MB
_ENTRY_BYTES = 1000  # of an entry of the audit log and its place in the indexes


class WriteBudget:
    """Counts for each name. An hour begins with the first write."""

    def __init__(self, hour_bytes: int = HOUR_BYTES, clock: Callable[[], float] = time.monotonic) -> None:
        self._hour_bytes, self._clock = hour_bytes, clock
        self._lock = threading.Lock()
        self._written: dict[str, tuple[float, int]] = {}  # name -> when its hour began, and bytes since then

    def spend(self, who: str, changes: int, text: str = "") -> None:
        """Count changes, each with this text before and after; 429 if they are too much for this hour."""
        new_bytes = changes * (_ENTRY_BYTES + 2 * len(json.dumps(text)))
        with self._lock:
            now_s = self._clock()
            began_s, written_bytes = self._written.get(who, (now_s, 0))
            if now_s - began_s >= HOUR_S:
                began_s, written_bytes = now_s, 0
            if written_bytes + new_bytes > self._hour_bytes:
                left_s = int(began_s + HOUR_S - now_s) + 1
                raise HTTPException(
                    429,
                    f"{who or 'you'} may change {self._hour_bytes / 1e6:g} MB an hour; change fewer events, or wait",
                    {"Retry-After": str(left_s)},
                )
            self._written[who] = began_s, written_bytes + new_bytes
