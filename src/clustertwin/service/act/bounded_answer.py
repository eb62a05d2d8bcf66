"""The body of an HTTP answer, within a budget: a response that is being received -> its bytes.

httpx decodes an answer before anybody can count its bytes, and its timeout begins anew with each byte. A node's helper
that is faulty could fill the memory with a few kilobytes, or hold its caller for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from clustertwin.core.errors import SourceError

if TYPE_CHECKING:
    import httpx

#: Sent with the request: a body that is not compressed has the size that it takes in memory.
PLAIN = {"Accept-Encoding": "identity"}


def body_of(
    answer: httpx.Response, most_bytes: int, until_s: float, clock: Callable[[], float] = time.monotonic
) -> bytes:
    """The body; `SourceError` if it is compressed, longer than the budget or not complete at `until_s`."""
    if encoding := answer.headers.get("Content-Encoding", "").strip().lower().removeprefix("identity"):
        raise SourceError(f"Content-Encoding is {encoding[:60]!r}; no compression is accepted")
    pieces, size = [], 0
    for piece in answer.iter_raw():
        pieces.append(piece)
        size += len(piece)
        if size > most_bytes:
            raise SourceError(f"more than {most_bytes >> 20} MB")
        if clock() > until_s:
            raise SourceError("the answer took too long")
    return b"".join(pieces)
