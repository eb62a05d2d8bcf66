"""Challengers: the night's material -> a detector of each architecture, fresh and warm, within a budget of time.

A trial of a few batches tells how fast each architecture learns here; from that, each gets as many epochs as its share
of the budget allows, the cheap ones first. Each is trained in a directory of its own, from checkpoint to checkpoint: a
night that was killed goes on where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from clustertwin.core.traces import Windows
from clustertwin.telemetry.detection import detector as detection
from clustertwin.telemetry.detection.detector import calibrate
from clustertwin.telemetry.learning.champions.fencing_lock import held
from clustertwin.telemetry.learning.night.night_data import windows_of
from clustertwin.telemetry.models.contract import config_to_json
from clustertwin.telemetry.models.model_store import ModelError, Stored, read, save
from clustertwin.telemetry.models.training import Epoch, TrainingSettings, fit
from clustertwin.telemetry.moments.moment import Moment
from clustertwin.telemetry.moments.moment_files import read_moments

Start = Literal["scratch", "warm", "recalibrated"]  # … or the champion's weights as they are, calibrated on the day
_TRIAL = 512  # windows
_FEWEST = 2  # epochs; fewer teach nothing


@dataclass(frozen=True, slots=True)
class Training:
    """How challengers are trained."""

    epochs: int = 20
    warm_epochs: int = 8
    rate: float = 2e-3
    warm_rate: float = 5e-4  # a gentle one: what was learned before should not be shaken off
    windows: int = 15_000  # at most, of all the day's
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Order:
    """One challenger to train, complete enough to be sent to another process."""

    name: str  # linear/warm
    settings: TrainingSettings
    directory: Path
    train: tuple[Path, ...]  # files of moments: the day's and what is replayed
    validation: tuple[Path, ...]
    start: Path | None  # a model's directory
    windows: int
    alarms: detection.Settings


def plan(
    speeds: Mapping[str, float], names: Sequence[tuple[str, Start]], windows: int, budget_s: float, training: Training
) -> tuple[dict[str, int], dict[str, str]]:
    """Epochs of each challenger, and why some get none: `budget_s` is of one core, over all.

    >>> fast, slow = ("linear", "scratch"), ("ae", "scratch")
    >>> plan({"linear": 1000.0, "ae": 10.0}, [slow, fast], 1000, 60.0, Training(epochs=10))
    ({'linear/scratch': 10}, {'ae/scratch': 'an epoch takes 100 s, 50 s are left for it'})
    """
    epochs, without = {}, {}
    left_s = budget_s
    waiting = sorted(names, key=lambda one: -speeds[one[0]])
    for i, (architecture, start) in enumerate(waiting):
        epoch_s = windows / speeds[architecture]
        share_s = left_s / (len(waiting) - i)
        wanted = training.epochs if start == "scratch" else training.warm_epochs
        given = min(wanted, int(share_s / epoch_s))
        if given < min(_FEWEST, wanted):
            without[f"{architecture}/{start}"] = f"an epoch takes {epoch_s:.0f} s, {share_s:.0f} s are left for it"
            continue
        epochs[f"{architecture}/{start}"] = given
        left_s -= given * epoch_s
    return epochs, without


def speed(architecture: str, windows: Windows, clock: Callable[[], float] = time.perf_counter) -> float:
    """Windows a second that training gets through on one core, which is what a challenger has."""
    few, threads = thin(windows, _TRIAL, 0), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        fit(few, few, TrainingSettings(architecture, epochs=1))  # the first run includes loading and compiling
        began_s = clock()
        fit(few, few, TrainingSettings(architecture, epochs=1))
        return len(few) / max(clock() - began_s, 1e-6)
    finally:
        torch.set_num_threads(threads)


def train(order: Order, progress: Callable[[Epoch], None] = lambda epoch: None) -> str:
    """Train and calibrate one challenger in its directory; done already: its name, at once.

    The lock is for the worker of a killed night that is still at it: it is waited for.
    """
    torch.set_num_threads(1)
    with held(order.directory / "lock"):
        if (order.directory / "detector.json").exists():
            return order.name
        moments, held_out = read_all(order.train), read_all(order.validation)
        start = None if order.start is None else read(order.start).model
        if start is None or order.settings.epochs:
            windows, validation = windows_of(moments), windows_of(held_out)
            start = fit(
                thin(windows, order.windows, order.settings.seed),
                thin(validation, order.windows // 3, order.settings.seed),
                order.settings,
                progress,
                order.directory / "checkpoint",
                start,
            ).model
        save(order.directory, order.settings.model, start, {"training": asdict(order.settings)})
        detection.save(order.directory, calibrate(read(order.directory), held_out, order.alarms, learn=moments))
    return order.name


def settings_of(architecture: str, epochs: int, training: Training, start: Stored | None = None) -> TrainingSettings:
    """A warm start keeps the size of the model it goes on from."""
    if start is None:
        return TrainingSettings(architecture, epochs=epochs, rate=training.rate, seed=training.seed)
    options = {key: value for key, value in config_to_json(start.model.config).items() if key != "shape"}
    return TrainingSettings(architecture, options, epochs=epochs, rate=training.warm_rate, seed=training.seed)


def thin(windows: Windows, most: int, seed: int) -> Windows:
    """At most so many windows: whole nodes at whole moments, so that what a graph sees together stays together."""
    if len(windows) <= most:
        return windows
    _, place = np.unique(np.rec.fromarrays([windows.node, windows.start_s]), return_inverse=True)
    turn = np.random.default_rng(seed).permutation(place.max() + 1)
    count = np.bincount(place)[turn]
    chosen = turn[: max(1, int(np.searchsorted(count.cumsum(), most, side="right")))]
    return windows.take(np.flatnonzero(np.isin(place, chosen)))


def read_all(paths: Sequence[Path]) -> list[Moment]:
    return [moment for path in paths for moment in read_moments(path)]


def warm_from(architecture: str, directories: Sequence[Path]) -> Path | None:
    """Where a warm start of this architecture begins: the first of these directories that holds one."""
    for directory in directories:
        try:
            if read(directory).name == architecture:
                return directory
        except ModelError:
            continue  # never finished, or damaged since
    return None
