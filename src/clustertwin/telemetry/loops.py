"""Compile a numeric loop with numba: Python function -> machine code, kept on disk until its files change."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
from numba.core.dispatcher import Dispatcher


def compiled(function: Callable[..., Any]) -> Any:
    """The function, compiled at its first call; later runs load it from the cache in about 0.1 s."""
    return _kept(function, {})


def vectorised(function: Callable[..., Any]) -> Any:
    """As `compiled`, for loops over rows of float32: a division does not stop to look for zero, which would keep the
    loop from running in vectors, and products and sums may be fused."""
    return _kept(function, {"error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz", "arcp"}})


def _kept(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    try:
        made = numba.njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:
        # Neither the package's directory nor the user's cache can be written: compile in every run instead.
        return numba.njit(nogil=True, **options)(function)
    # numba looks only at the loop's own file; a loop it calls, changed in another one, would go unnoticed.
    files = sorted({Path(one.__code__.co_filename) for one in _parts(function)})
    made._cache._cache_file._source_stamp = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    return made


def _parts(function: Any) -> Iterator[Any]:
    """A function, and the loops that are compiled into it."""
    yield function
    for name in function.__code__.co_names:
        called = function.__globals__.get(name)
        if isinstance(called, Dispatcher):
            yield from _parts(called.py_func)
