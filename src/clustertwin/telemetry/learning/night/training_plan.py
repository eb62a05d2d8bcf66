"""Plan the night's training: architectures, a time budget, training speeds -> epochs for each challenger.

A short trial measures how fast each architecture trains on this machine. Each challenger then gets an equal share of
the remaining budget, fastest first, so that the slow ones inherit what the fast ones do not use.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from clustertwin.core.traces import Windows
from clustertwin.telemetry.learning.night.challengers import ChallengerTraining, Start
from clustertwin.telemetry.learning.night.training_windows import subsample
from clustertwin.telemetry.models.model_store import ModelError, read
from clustertwin.telemetry.models.training import TrainingSettings, fit

_TRIAL_WINDOWS = 512
_FEWEST_EPOCHS = 2  # a challenger that would get fewer is not trained


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """The plan as plan.json stores it. A challenger's name is architecture/start."""

    epochs: dict[str, int]
    without: dict[str, str]  # challengers that are not trained, and why
    starts: dict[str, str]  # challenger -> the directory whose weights it starts from
    replayed: list[str]  # days of the rehearsal memory
    windows_per_s: dict[str, float]  # measured training speed of each architecture

    def start_directory(self, challenger: str) -> Path | None:
        return Path(self.starts[challenger]) if challenger in self.starts else None


def plan_epochs(
    speeds: Mapping[str, float],
    candidates: Sequence[tuple[str, Start]],
    windows: int,
    budget_s: float,
    training: ChallengerTraining,
) -> tuple[dict[str, int], dict[str, str]]:
    """Epochs of each challenger, and why some get none. `budget_s` counts seconds of one core.

    >>> fast, slow = ("linear", "scratch"), ("ae", "scratch")
    >>> plan_epochs({"linear": 1000.0, "ae": 10.0}, [slow, fast], 1000, 60.0, ChallengerTraining(epochs=10))
    ({'linear/scratch': 10}, {'ae/scratch': 'an epoch takes 100 s, its share of the budget is 50 s'})
    """
    epochs, without = {}, {}
    remaining_s = budget_s
    fastest_first = sorted(candidates, key=lambda candidate: -speeds[candidate[0]])
    for i, (architecture, start) in enumerate(fastest_first):
        epoch_s = windows / speeds[architecture]
        share_s = remaining_s / (len(fastest_first) - i)
        wanted = training.epochs if start == "scratch" else training.warm_epochs
        granted = min(wanted, int(share_s / epoch_s))
        name = f"{architecture}/{start}"
        if granted < min(_FEWEST_EPOCHS, wanted):
            without[name] = f"an epoch takes {epoch_s:.0f} s, its share of the budget is {share_s:.0f} s"
            continue
        epochs[name] = granted
        remaining_s -= granted * epoch_s
    return epochs, without


def training_speed(architecture: str, windows: Windows, clock: Callable[[], float] = time.perf_counter) -> float:
    """Windows per second in training on one core: each challenger trains on one core."""
    sample, threads = subsample(windows, _TRIAL_WINDOWS, 0), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        fit(sample, sample, TrainingSettings(architecture, epochs=1))  # the first run includes one-off costs
        started_s = clock()
        fit(sample, sample, TrainingSettings(architecture, epochs=1))
        return len(sample) / max(clock() - started_s, 1e-6)
    finally:
        torch.set_num_threads(threads)


def warm_start_directory(architecture: str, directories: Sequence[Path]) -> Path | None:
    """The first of these directories that holds a model of this architecture."""
    for directory in directories:
        try:
            if read(directory).name == architecture:
                return directory
        except ModelError:
            continue  # never finished, or damaged
    return None
