"""What every room's tests share: where the real data lies, if it lies anywhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data() -> Path:
    """The directory of real logs and recordings; a test that needs it is skipped, with a reason, where it is absent."""
    root = Path(os.environ.get("CLUSTERTWIN_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not root.is_dir():
        pytest.skip("real data not here: set CLUSTERTWIN_DATA to its directory")
    return root
