"""Moments on disk keep their channels, their unknown values and their names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clustertwin.core.channels import CPU, NODE
from clustertwin.core.errors import RecordingError
from clustertwin.telemetry.moments.moment import Moment
from clustertwin.telemetry.moments.moment_files import read_moments, write_moments


def test_moments_of_different_schemas_and_unknown_values_are_read_back(moment: Moment, tmp_path: Path):
    values = np.concatenate([moment.values, np.full((8, 300, 2), np.nan, np.float32)], axis=-1)
    wide = replace(moment, schema=CPU + NODE, values=values)
    write_moments(tmp_path / "moments.safetensors", [moment, wide])
    first, second = read_moments(tmp_path / "moments.safetensors")
    assert (first.schema, second.schema) == (CPU, CPU + NODE)
    assert (first.nodes, first.jobs, first.end_s) == (moment.nodes, moment.jobs, moment.end_s)
    np.testing.assert_array_equal(first.values, moment.values)
    np.testing.assert_array_equal(second.values, wide.values)
    np.testing.assert_array_equal(second.job, moment.job)


def test_a_missing_file_and_a_file_of_something_else_are_named(tmp_path: Path):
    with pytest.raises(RecordingError, match="does not exist"):
        read_moments(tmp_path / "none")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(RecordingError, match="not a file of moments"):
        read_moments(tmp_path / "text")
