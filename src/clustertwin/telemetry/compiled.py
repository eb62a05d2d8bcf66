"""Compile a numeric loop with numba: Python function -> machine code, kept on disk where a disk allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def compiled(function: Callable[..., Any]) -> Any:
    """The function, compiled at its first call; later runs load it from the cache in about 0.1 s."""
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        # Neither the package's directory nor the user's cache can be written: compile in every run instead.
        return numba.njit(nogil=True)(function)
