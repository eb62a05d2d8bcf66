"""Fixtures for tests of feeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def squeue(tmp_path: Path) -> Callable[[str], str]:
    """Writes a squeue that runs a script, and returns its path."""

    def write(script: str) -> str:
        path = tmp_path / "squeue"
        mark = "mark=${3#--format=}; mark=${mark%%|*}"  # squeue prints what comes before its fields
        path.write_text(f"#!/bin/sh\n{mark}\n{script}\n")
        path.chmod(0o755)
        return str(path)

    return write
