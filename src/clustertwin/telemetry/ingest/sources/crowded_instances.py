"""Instances with more series than a node has: the answer to a count -> matchers that leave them out for a while.

The limits of an answer are for all nodes together, so one node with a million series would make all others unreadable.
"""

from __future__ import annotations

import json

import orjson

from clustertwin.core.errors import SourceError
from clustertwin.core.formatting import visible

#: An instance is left out for this long, and then tried again.
LEFT_OUT_S = 600.0
#: Instances that one count returns.
MOST_COUNTED = 20
#: Instances that are left out. Their names are in every query.
MOST_LEFT_OUT = 100
_MOST_BYTES = 1 << 20


class CrowdedInstances:
    def __init__(self, url: str, most_series: int) -> None:
        """`most_series` is the limit of one instance."""
        self._url, self._most_series = url, most_series
        self._noted_s: dict[str, float] = {}

    def matchers(self, at_s: float) -> list[str]:
        """PromQL matchers for a query at this time."""
        self._noted_s = {i: noted_s for i, noted_s in self._noted_s.items() if abs(at_s - noted_s) < LEFT_OUT_S}
        return [f"instance!={json.dumps(instance, ensure_ascii=False)}" for instance in self._noted_s]

    @property
    def reasons(self) -> dict[str, str]:
        """Why the instances are left out."""
        reason = f"more than {self._most_series} series of one metric, so it is left out for ten minutes"
        return {instance: f"{self._url}: {visible(instance[:60])}: {reason}" for instance in self._noted_s}

    def query(self, selector: str) -> str:
        """The query whose answer `note` reads."""
        return f"topk({MOST_COUNTED}, count by (instance) ({selector}))"

    def note(self, body: bytes, at_s: float) -> bool:
        """Leave out the instances that a count is too large for; whether there are new ones."""
        try:
            if len(body) > _MOST_BYTES:
                raise ValueError
            rows = orjson.loads(body)["data"]["result"][:MOST_COUNTED]
            counts = {str(row["metric"].get("instance", "")): float(row["value"][1]) for row in rows}
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            raise SourceError(f"{self._url}: does not answer like Prometheus") from None
        crowded = {i for i, count in counts.items() if count > self._most_series} - self._noted_s.keys()
        if len(self._noted_s) + len(crowded) > MOST_LEFT_OUT:
            return False
        self._noted_s |= dict.fromkeys(crowded, at_s)
        return bool(crowded)
