"""Compiled loops work with a cache and without one, and a cache does not outlive what it was made of."""

from __future__ import annotations

import errno
import fcntl
import runpy
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest

from clustertwin.core.compiled import compiled


def twice(x: float) -> float:
    return 2 * x


def test_a_loop_compiles_where_nothing_can_be_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    njit = numba.njit

    def nowhere_to_cache(*, cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function 'twice': no locator available for file")
        return njit(**options)

    monkeypatch.setattr("clustertwin.core.compiled.numba", SimpleNamespace(njit=nowhere_to_cache))
    assert compiled(twice)(2.0) == 4.0


OUTER = """
from runpy import run_path
from clustertwin.core.compiled import compiled

inner = run_path(r"{inner}")["inner"]

@compiled
def outer(x: float) -> float:
    return inner(x) + 1
"""
INNER = """
from clustertwin.core.compiled import compiled

@compiled
def inner(x: float) -> float:
    return {factor} * x
"""


def test_a_loop_is_compiled_anew_when_one_that_it_calls_has_changed_in_another_file(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner.py", tmp_path / "outer.py"
    outer.write_text(OUTER.format(inner=inner))
    for factor, answer in ((2, 5.0), (3, 7.0)):
        inner.write_text(INNER.format(factor=factor))
        assert runpy.run_path(str(outer))["outer"](2.0) == answer


@compiled
def size(array):  # type: ignore[no-untyped-def]
    return array.size


def test_a_loop_that_reads_an_attribute_of_its_own_name_compiles() -> None:
    compiled(size.py_func)  # by now the global name leads to the loop itself
    assert size(np.zeros(3)) == 3


LOOP = """
from clustertwin.core.compiled import compiled

@compiled
def loop(x: float) -> float:
    return 2 * x
"""


@pytest.mark.medium
@pytest.mark.parametrize("part", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", [b"", b"\0\0\0", b"\x80\x05noise"])
def test_a_damaged_cache_is_compiled_again_and_mended(tmp_path: Path, part: str, damage: bytes) -> None:
    """A power cut can leave empty files. numba raised an error in every run, until somebody deleted its cache."""
    (tmp_path / "loop.py").write_text(LOOP)

    def run() -> Any:
        loop = runpy.run_path(str(tmp_path / "loop.py"))["loop"]
        assert loop(2.0) == 4.0
        return loop

    [path] = Path(run()._cache.cache_path).glob(f"loop.loop*.{part}")
    path.write_bytes(damage)
    run()
    assert sum(run().stats.cache_hits.values()) == 1


def test_a_loop_runs_although_its_cache_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile._open_for_write", full)
    (tmp_path / "loop.py").write_text(LOOP)
    assert runpy.run_path(str(tmp_path / "loop.py"))["loop"](2.0) == 4.0


def held(lock: Path) -> Any:
    """The lock of a loop, held until the file is closed."""
    file = lock.open()
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


@pytest.mark.medium
def test_a_loop_that_another_process_compiles_at_this_moment_is_taken_from_it(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    first = runpy.run_path(str(tmp_path / "loop.py"))["loop"]
    assert first(2.0) == 4.0
    directory = Path(first._cache.cache_path)
    [index], [lock] = (list(directory.glob(f"loop.loop*.{kind}")) for kind in ("nbi", "lock"))
    index.rename(tmp_path / "stored later")
    other = held(lock)

    def store() -> None:
        time.sleep(0.3)
        (tmp_path / "stored later").rename(index)
        other.close()

    thread = threading.Thread(target=store)
    thread.start()
    second = runpy.run_path(str(tmp_path / "loop.py"))["loop"]
    assert second(2.0) == 4.0
    thread.join()
    assert sum(second.stats.cache_hits.values()) == 1
    held(lock).close()  # nobody holds it any more


def test_a_loop_is_compiled_here_if_another_process_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clustertwin.core.compiled.PATIENCE_S", 0.1)
    (tmp_path / "loop.py").write_text(LOOP)
    first = runpy.run_path(str(tmp_path / "loop.py"))["loop"]
    assert first(2.0) == 4.0
    directory = Path(first._cache.cache_path)
    for path in directory.glob("loop.loop*.nb?"):
        path.unlink()
    [lock] = directory.glob("loop.loop*.lock")
    with held(lock):
        assert runpy.run_path(str(tmp_path / "loop.py"))["loop"](2.0) == 4.0
