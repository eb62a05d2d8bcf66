from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def log(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """Writes a log under the module's `LOG_NAME`, and returns its path."""

    def make(text: str) -> Path:
        path = tmp_path / request.module.LOG_NAME
        path.write_text(text)
        return path

    return make
