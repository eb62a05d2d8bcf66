"""Load the detector beside the loop: a function that takes seconds -> a result, tried again if it fails.

At the start of the service a limit of descriptors, memory or disk can make the import of a library fail. That passes,
and the service must not need a restart then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # importing it imports torch, which takes seconds
    from clustertwin.telemetry.learning.champions.handover import Handover

#: From a failure to the next attempt.
AGAIN_S = 15.0


class Loading(Protocol):
    """What the loop asks; a `Future` is one too."""

    def done(self) -> bool: ...

    def result(self) -> Handover: ...


class RepeatedLoading:
    """Loads in a thread. After a failure, `result` raises its reason until a later attempt succeeds."""

    def __init__(self, load: Callable[[], Handover], clock: Callable[[], float] = time.monotonic) -> None:
        self._load, self._clock = load, clock
        self._reason: Exception | None = None  # why the last attempt failed
        self._failed_s = 0.0
        self._attempt = self._begin()

    def done(self) -> bool:
        """Whether an attempt has ended. From then on this stays true."""
        return self._reason is not None or self._attempt.done()

    def result(self) -> Handover:
        if self._attempt.done():
            error = self._attempt.exception()
            if error is None:
                return self._attempt.result()
            if self._reason is not error:
                self._reason, self._failed_s = error if isinstance(error, Exception) else None, self._clock()
            if self._clock() - self._failed_s >= AGAIN_S:
                self._attempt = self._begin()
        if self._reason is None:
            return self._attempt.result()
        raise self._reason

    def _begin(self) -> Future[Handover]:
        pool = ThreadPoolExecutor(1, "champion")
        try:
            return pool.submit(self._load)
        finally:
            pool.shutdown(wait=False)
