"""A moment of one node, small enough to check by hand."""

from __future__ import annotations

import numpy as np
import pytest

from clustertwin.core.channels import CPU
from clustertwin.telemetry.moments.moment import Moment


@pytest.fixture
def moment() -> Moment:
    """One node of eight threads; a job of four computes, the rest lies idle."""
    values = np.zeros((8, 300, 4), np.float32)
    values[:4, :, 0], values[4:, :, 3] = 1, 1
    job = np.array([0, 0, 0, 0, -1, -1, -1, -1], np.int32)
    return Moment(
        end_s=1_000,
        schema=CPU,
        values=values,
        valid=np.ones((8, 300), np.bool_),
        nodes=("n1",),
        node=np.zeros(8, np.int32),
        cpu=np.arange(8, dtype=np.int32),
        jobs=("7",),
        job=job,
        age_s=np.full(8, 900, np.int32),
    )
