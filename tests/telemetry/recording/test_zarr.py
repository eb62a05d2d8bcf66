"""The zarr package reads the bytes that were recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clustertwin.core.channels import CPU, NODE
from clustertwin.core.traces import NodeChannels, Trace
from clustertwin.telemetry.recording import Recorder, RecordingSettings


@pytest.mark.slow  # zarr takes a second to import
def test_zarr_reads_what_was_recorded(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    rng = np.random.default_rng(0)
    ticks = rng.multinomial(100, [0.4, 0.3, 0.2, 0.1], size=(3, 150)).astype(np.uint8)
    valid = rng.random((3, 150)) > 0.2
    valid[1] = False  # a thread that was never seen
    trace = Trace("gpu/1", (4, 5, 6), 1030, CPU, (ticks / 100).astype(np.float32), valid)
    node_values = rng.integers(0, 251, (150, len(NODE))) / np.float32(250)
    node_values[7] = np.nan
    trace = replace(trace, node_channels=NodeChannels(NODE, node_values))
    settings = RecordingSettings(chunk_s=60)
    with Recorder.create(tmp_path / "r", {"gpu/1": (4, 5, 6)}, node_schema=NODE, settings=settings) as recorder:
        recorder.append(trace)

    array = zarr.open_group(str(tmp_path / "r"), mode="r")["gpu%2F1"]
    assert array.attrs["channel"] == ["system", "iowait", "other"]
    assert array.attrs["rest"] == {"user": ["system", "iowait", "other"]}
    at = trace.start_s - array.attrs["origin_s"]
    expected = np.where(valid[:, None], ticks[..., 1:].swapaxes(1, 2), 255)
    assert np.array_equal(array[:, :, at : at + 150], expected)
    assert (array[:, :, :at] == 255).all()
    assert array.metadata.dimension_names == ("cpu", "channel", "time")

    node = zarr.open_group(str(tmp_path / "r"), mode="r")["gpu%2F1!0"]
    assert node.attrs["channel"] == list(NODE.names)
    bytes_ = np.where(np.isnan(node_values), 255, np.rint(np.nan_to_num(node_values) * 250)).astype(np.uint8)
    assert np.array_equal(node[:, 0, at : at + 150], bytes_.T)
