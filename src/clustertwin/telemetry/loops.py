"""Compile a numeric loop with numba: Python function -> machine code, kept on disk where a disk allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def compiled(function: Callable[..., Any]) -> Any:
    """The function, compiled at its first call; later runs load it from the cache in about 0.1 s."""
    return _kept(function, {})


def vectorised(function: Callable[..., Any]) -> Any:
    """As `compiled`, for loops over rows of float32: a division does not stop to look for zero, which would keep the
    loop from running in vectors, and products and sums may be fused."""
    return _kept(function, {"error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz", "arcp"}})


def _kept(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    try:
        return numba.njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:
        # Neither the package's directory nor the user's cache can be written: compile in every run instead.
        return numba.njit(nogil=True, **options)(function)
