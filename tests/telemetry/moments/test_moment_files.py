"""Moments on disk keep their channels, their unknown values and their names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clustertwin.core.channels import CPU, JOB, NODE
from clustertwin.core.errors import RecordingError
from clustertwin.core.traces import NodeChannels
from clustertwin.telemetry.moments.moment import JobMoment, Moment
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


def test_the_channels_of_nodes_and_jobs_are_read_back(moment: Moment, tmp_path: Path):
    """The questions need them: without them a night judges no leak, no pressure and no other work."""
    rng = np.random.default_rng(0)
    of_nodes = NodeChannels(NODE, rng.random((len(moment.nodes), 300, len(NODE))).astype(np.float32))
    of_nodes.values[0, :5] = np.nan
    of_jobs = JobMoment(JOB, moment.jobs[:1], np.zeros(1, np.int32), rng.random((1, 300, len(JOB))).astype(np.float32))
    full = replace(moment, node_channels=of_nodes, job_channels=of_jobs)
    write_moments(tmp_path / "moments.safetensors", [moment, full])
    first, second = read_moments(tmp_path / "moments.safetensors")
    assert (first.node_channels, first.job_channels) == (None, None)
    assert second.node_channels is not None
    assert second.job_channels is not None
    assert (second.node_channels.schema, second.job_channels.schema) == (NODE, JOB)
    assert second.job_channels.jobs == of_jobs.jobs
    np.testing.assert_allclose(second.node_channels.values, of_nodes.values, atol=1 / 2048)
    np.testing.assert_allclose(second.job_channels.values, of_jobs.values, atol=1 / 2048)
    np.testing.assert_array_equal(second.job_channels.node, of_jobs.node)


def test_a_missing_file_and_a_file_of_something_else_are_named(tmp_path: Path):
    with pytest.raises(RecordingError, match="does not exist"):
        read_moments(tmp_path / "none")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(RecordingError, match="not a file of moments"):
        read_moments(tmp_path / "text")
