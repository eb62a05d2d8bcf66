"""Compile a kernel when it is first called, and keep it on disk until a file it is made of changes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any

from numba import njit


def compiled(signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """As `njit(signature, cache=True)`, but late: importing this room costs nothing.

    The signature is given so that policies arrive as pointers: one compilation serves them all.
    """

    def decorate(kernel: Callable[..., Any]) -> Callable[..., Any]:
        @lru_cache(maxsize=1)
        def ready() -> Callable[..., Any]:
            dispatcher = njit(nogil=True)(kernel)
            dispatcher.enable_caching()
            # numba looks only at the kernel's own file; a verb changed in another one would go unnoticed, and crash.
            dispatcher._cache._cache_file._source_stamp = _sources()
            dispatcher.compile(signature)
            dispatcher.disable_compile()
            return dispatcher

        @wraps(kernel)
        def call(*arguments: Any) -> Any:
            return ready()(*arguments)

        return call

    return decorate


@lru_cache(maxsize=1)
def _sources() -> str:
    """A hash of every file that can be compiled into a kernel: those of numba, here and among the policies."""
    texts = [file.read_bytes() for file in sorted(Path(__file__).parents[1].glob("[ps]*/*.py"))]
    return hashlib.sha256(b"".join(text for text in texts if b"numba" in text)).hexdigest()
