"""Compile numeric loops with numba: Python function -> machine code, cached on disk until its source changes.

numba checks only the file of the compiled function. A loop may call loops of other files, so the cache is keyed by the
content of every file that is compiled into it. numba also raises whatever the files of the cache raise, in every run: a
power cut can leave them empty, and the disk can be full. Processes that start together would all compile the same
loops, so one of them does, and the others wait for its result.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher

#: Wait this long while another process compiles a loop. If it takes longer, that process may be stopped: compile here.
PATIENCE_S = 120.0


class _MendingCache(FunctionCache):
    """A cache that is never needed: what cannot be loaded is compiled again, and what cannot be stored is not."""

    _lock: int | None = None  # a descriptor, from before a loop is compiled until it is stored

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = self._load(sig, target_context)
        if found is None and self._lock is None:
            self._lock = self._locked()
            found = self._load(sig, target_context)  # another process may have stored it meanwhile
            if found is not None:
                self._unlock()
        return found

    def _load(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # what damaged files raise has no common ancestor
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(Exception):
            try:
                super().save_overload(sig, data)
            except Exception:
                self.flush()  # a damaged index must be replaced first
                super().save_overload(sig, data)
        self._unlock()

    def _locked(self) -> int | None:
        """The lock of this loop, or nothing where there are no locks, or where another process keeps it for long."""
        give_up_s = time.monotonic() + PATIENCE_S
        try:
            self._impl.locator.ensure_cache_path()
            lock = os.open(os.path.join(self.cache_path, f"{self._impl.filename_base}.lock"), os.O_CREAT, 0o644)
        except OSError:
            return None
        while time.monotonic() < give_up_s:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:
                break
        os.close(lock)
        return None

    def _unlock(self) -> None:
        if self._lock is not None:
            fcntl.flock(self._lock, fcntl.LOCK_UN)  # a process that was forked meanwhile has the descriptor too
            os.close(self._lock)
            self._lock = None


def compiled(function: Callable[..., Any]) -> Any:
    """The function, compiled at its first call; later runs load it from the cache in about 0.1 s."""
    return _cached(function, {})


def borrowing(function: Callable[..., Any]) -> Any:
    """As `compiled`, for loops that allocate no arrays and return none, and call only such loops.

    numba then counts no references. Loops that pass tuples of many arrays compile in half the time and run faster.
    """
    return _cached(function, {"_nrt": False})


def vectorised(function: Callable[..., Any]) -> Any:
    """As `compiled`, for loops over rows of float32.

    Division does not check for zero, which would prevent vectorisation, and products and sums may be fused.
    """
    return _cached(function, {"error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz", "arcp"}})


def compiled_for(signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """As `compiled`, for one signature and at the first call, so that importing the module costs nothing.

    The signature is explicit so that functions can arrive as pointers: one compilation serves all of them.
    """

    def decorate(kernel: Callable[..., Any]) -> Callable[..., Any]:
        @lru_cache(maxsize=1)
        def ready() -> Callable[..., Any]:
            dispatcher = _cached(kernel, {})
            dispatcher.compile(signature)
            dispatcher.disable_compile()
            return dispatcher

        @wraps(kernel)
        def call(*arguments: Any) -> Any:
            return ready()(*arguments)

        return call

    return decorate


def _cached(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    try:
        dispatcher = numba.njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:
        # Neither the package's directory nor the user's cache can be written: compile in every run instead.
        return numba.njit(nogil=True, **options)(function)
    sources = sorted({Path(part.__code__.co_filename) for part in _reachable(function)})
    stamp = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    dispatcher._cache = _MendingCache(function)
    dispatcher._cache._cache_file._source_stamp = stamp
    return dispatcher


def _reachable(function: Any) -> list[Any]:
    """A function, and the loops that are compiled into it."""
    functions = [function]
    for each in functions:  # the list grows: a name may also be an attribute, or lead back to the function itself
        called = (each.__globals__.get(name) for name in each.__code__.co_names)
        loops = [loop.py_func for loop in called if isinstance(loop, Dispatcher)]
        functions += [loop for loop in dict.fromkeys(loops) if loop not in functions]
    return functions
