"""Challengers: what a budget of time gives each of them."""

import torch
from tests.telemetry.learning.conftest import small_day

from clustertwin.telemetry.learning.night import challengers
from clustertwin.telemetry.learning.night.night_data import gather, windows_of
from clustertwin.telemetry.recording.trace_archive import MemoryArchive


def test_speed_is_that_of_the_one_core_on_which_a_challenger_is_trained(monkeypatch):
    day, traces = small_day(1)
    windows = windows_of(gather(day, MemoryArchive(traces), [], 10)[0].train)
    before, threads = torch.get_num_threads(), []
    monkeypatch.setattr(challengers, "fit", lambda *_: threads.append(torch.get_num_threads()))
    ticks = iter([10.0, 12.0])
    try:
        torch.set_num_threads(2)
        assert challengers.speed("linear", windows, lambda: next(ticks)) == min(len(windows), 512) / 2
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert threads == [1, 1]
