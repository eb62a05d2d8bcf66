"""How often an address may ask: an address and a time -> whether its request is answered, in bounded memory.

A scrape costs about two milliseconds of a node that has other work to do. Prometheus asks once a second. An address
that asks much more often is refused, which costs a fortieth of a scrape. This machine's own addresses have no limit:
who runs programs here needs no exporter to use its processors.
"""

from __future__ import annotations

from threading import Lock

PER_S = 20.0  # requests of one address: several scrapers behind one address translation stay below
BURST = 60.0  # after a pause
MOST_ADDRESSES = 256  # that are remembered; the one that asked first is forgotten


class RequestRate:
    """A bucket of requests for each address. Different threads may ask."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}  # address -> requests that are left, and when that was so
        self._lock = Lock()

    def allows(self, address: str, now_s: float) -> bool:
        if address.startswith("127.") or address in ("", "::1", "::ffff:127.0.0.1"):
            return True
        with self._lock:
            left, at_s = self._left.get(address, (BURST, now_s))
            left = min(left + max(now_s - at_s, 0.0) * PER_S, BURST)
            is_allowed = left >= 1.0
            if address not in self._left and len(self._left) >= MOST_ADDRESSES:
                del self._left[next(iter(self._left))]
            self._left[address] = left - is_allowed, now_s
            return is_allowed
