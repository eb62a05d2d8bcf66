"""Compiled loops work with a cache and without one."""

from __future__ import annotations

from typing import Any

import numba
import pytest

from clustertwin.telemetry.loops import compiled


def twice(x: float) -> float:
    return 2 * x


def test_a_loop_compiles_where_nothing_can_be_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    njit = numba.njit

    def nowhere_to_cache(*, cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function 'twice': no locator available for file")
        return njit(**options)

    monkeypatch.setattr(numba, "njit", nowhere_to_cache)
    assert compiled(twice)(2.0) == 4.0
