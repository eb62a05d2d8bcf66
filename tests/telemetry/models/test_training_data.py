import numpy as np
import pytest

from clustertwin.core.channels import CPU
from clustertwin.core.errors import SettingsError
from clustertwin.core.traces import JobSpan, Trace
from clustertwin.core.windows import cut
from clustertwin.telemetry.models.training_data import normal_windows, read_windows, split_windows

VALUES = np.tile(np.array([0.9, 0.05, 0.0, 0.05], np.float32), (2, 1000, 1))


def trace(spans=()):
    return Trace("n1", (0, 1), 0, CPU, VALUES, np.ones((2, 1000), bool), tuple(spans))


def test_the_error_for_no_recordings_says_how_to_make_one(tmp_path):
    with pytest.raises(SettingsError, match="twin record"):
        read_windows([tmp_path])


def test_anomalies_and_edges_are_not_normal():
    spans = [JobSpan("1", "n1", (0,), 0, 500, "np"), JobSpan("2", "n1", (1,), 0, 1000, "np", anomaly="throttled")]
    windows = normal_windows(cut(trace(spans)))
    assert set(windows.cpu) == {0}
    assert len(windows) == 10, "five windows of the job and five idle ones after it"


def test_windows_without_a_campaign_are_split_by_time_and_share_no_second():
    parts = split_windows(cut(trace(), stride_s=10))
    last = parts["train"].start_s.max() + 100
    assert last <= parts["validation"].start_s.min()
    assert len(parts["train"]) > 2 * len(parts["validation"])


def test_campaigns_keep_their_own_split():
    parts = split_windows(cut(trace(), campaign="a", split="test"))
    assert {name: len(part) for name, part in parts.items()} == {"train": 0, "validation": 0, "test": 20}
