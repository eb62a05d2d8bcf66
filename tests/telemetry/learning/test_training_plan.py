"""How many epochs a time budget gives each challenger."""

import torch
from tests.telemetry.learning.conftest import small_day

from clustertwin.telemetry.learning.night import training_plan
from clustertwin.telemetry.learning.night.challengers import ChallengerTraining
from clustertwin.telemetry.learning.night.day_sampling import SamplingSettings, sample_day
from clustertwin.telemetry.learning.night.training_windows import training_windows
from clustertwin.telemetry.recording.trace_archive import MemoryArchive


def test_speed_is_measured_on_one_core_because_a_challenger_trains_on_one(monkeypatch):
    day, traces = small_day(1)
    windows = training_windows(sample_day(day, MemoryArchive(traces), [], SamplingSettings(10, 0))[0].train)
    before, threads = torch.get_num_threads(), []
    monkeypatch.setattr(training_plan, "fit", lambda *_: threads.append(torch.get_num_threads()))
    ticks = iter([10.0, 12.0])
    try:
        torch.set_num_threads(2)
        assert training_plan.training_speed("linear", windows, lambda: next(ticks)) == min(len(windows), 512) / 2
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert threads == [1, 1]


def test_the_slow_architecture_gets_the_time_that_the_fast_one_does_not_use():
    speeds = {"fast": 1000.0, "slow": 100.0}
    candidates = [("slow", "scratch"), ("fast", "scratch")]
    epochs, without = training_plan.plan_epochs(speeds, candidates, 1000, 70.0, ChallengerTraining(epochs=20))
    assert epochs == {"fast/scratch": 20, "slow/scratch": 5}
    assert without == {}
