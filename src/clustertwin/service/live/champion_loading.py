"""Load the detector beside the loop: a function that takes seconds -> a result, tried again if it fails.

At the start of the service a limit of descriptors, memory or disk can make loading fail. That passes. If it interrupted
the import of a library, only a new process can import it: after some attempts the service gives up and is restarted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from clustertwin.core.errors import TwinError

if TYPE_CHECKING:  # importing it imports torch, which takes seconds
    from clustertwin.telemetry.learning.champions.handover import Handover

#: From a failure to the next attempt.
AGAIN_S = 5.0
#: After this many failures the process is taken to be unable to load the detector.
MOST_ATTEMPTS = 4


class Loading(Protocol):
    """What the loop asks; a `Future` is one too."""

    def done(self) -> bool: ...

    def result(self) -> Handover: ...


class RepeatedLoading:
    """Loads in a thread. After a failure, `result` raises its reason until a later attempt succeeds."""

    def __init__(self, load: Callable[[], Handover], clock: Callable[[], float] = time.monotonic) -> None:
        self._load, self._clock = load, clock
        self._reason: Exception | None = None  # why the last attempt failed
        self._failed_s, self._failures = 0.0, 0
        self._attempt = self._begin()
        self._judged: Future[Handover] | None = None  # the last attempt whose failure is counted

    def done(self) -> bool:
        """Whether an attempt has ended. From then on this stays true."""
        return self._reason is not None or self._attempt.done()

    def result(self) -> Handover:
        if self._attempt.done():
            error = self._attempt.exception()
            if error is None:
                return self._attempt.result()
            if self._judged is not self._attempt:
                self._judged = self._attempt
                self._reason, self._failed_s = error if isinstance(error, Exception) else None, self._clock()
                self._failures += 1
            if self._clock() - self._failed_s >= AGAIN_S:
                self._attempt = self._begin()
        if self._reason is None:
            return self._attempt.result()
        raise self._reason

    @property
    def gave_up(self) -> bool:
        """Whether only a new process may succeed. A missing package or a refused file stays missing or refused."""
        permanent = isinstance(self._reason, TwinError | ModuleNotFoundError)
        return self._failures >= MOST_ATTEMPTS and not permanent

    def _begin(self) -> Future[Handover]:
        pool = ThreadPoolExecutor(1, "champion")
        try:
            return pool.submit(self._load)
        finally:
            pool.shutdown(wait=False)
