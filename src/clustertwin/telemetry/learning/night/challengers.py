"""Train one challenger: files of moments and settings -> a calibrated detector in a directory of its own.

Training writes checkpoints. A night that was killed continues from the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.detection import detector_store
from clustertwin.telemetry.detection.calibration import calibrate
from clustertwin.telemetry.detection.detector import DetectorSettings
from clustertwin.telemetry.learning.champions.fencing_lock import file_lock
from clustertwin.telemetry.learning.night.training_windows import subsample, training_windows
from clustertwin.telemetry.models.contract import config_to_json
from clustertwin.telemetry.models.model_store import StoredModel, read, save
from clustertwin.telemetry.models.training import Epoch, TrainingSettings, fit
from clustertwin.telemetry.moments.moment import Moment
from clustertwin.telemetry.moments.moment_files import read_moments

#: New weights, the newest weights of this architecture, or the champion's unchanged weights with a new calibration.
Start = Literal["scratch", "warm", "recalibrated"]


@dataclass(frozen=True, slots=True)
class ChallengerTraining:
    """How challengers are trained."""

    epochs: int = 20
    warm_epochs: int = 8
    rate: float = 2e-3  # learning rate
    warm_rate: float = 5e-4  # lower, to forget less of what the weights already encode
    windows: int = 15_000  # at most
    seed: int = 0


@dataclass(frozen=True, slots=True)
class ChallengerJob:
    """One challenger to train, with everything that another process needs."""

    name: str  # linear/warm
    settings: TrainingSettings
    directory: Path
    train: tuple[Path, ...]  # files of moments: the day's, and those of the rehearsal memory
    validation: tuple[Path, ...]
    start: Path | None  # the directory of the model to start from
    windows: int
    alarms: DetectorSettings


@dataclass(frozen=True, slots=True)
class TrainedChallenger:
    name: str
    failure: str = ""  # why it cannot compete, such as too few normal windows; empty: it can


def train_challenger(job: ChallengerJob, progress: Callable[[Epoch], None] = lambda epoch: None) -> TrainedChallenger:
    """Train and calibrate a challenger. A challenger that is already trained is left alone."""
    try:
        _train(job, progress)
    except SettingsError as error:
        return TrainedChallenger(job.name, str(error))
    return TrainedChallenger(job.name)


def _train(job: ChallengerJob, progress: Callable[[Epoch], None]) -> None:
    """A worker of a killed night can still be running. The lock waits for it."""
    torch.set_num_threads(1)
    with file_lock(job.directory / "lock"):
        if (job.directory / "detector.json").exists():
            return
        train, validation = _read_all(job.train), _read_all(job.validation)
        model = None if job.start is None else read(job.start).model
        if model is None or job.settings.epochs:
            model = fit(
                subsample(training_windows(train), job.windows, job.settings.seed),
                subsample(training_windows(validation), job.windows // 3, job.settings.seed),
                job.settings,
                progress,
                job.directory / "checkpoint",
                model,
            ).model
        save(job.directory, job.settings.model, model, {"training": asdict(job.settings)})
        detector_store.save(job.directory, calibrate(read(job.directory), validation, job.alarms, learn=train))


def training_settings(
    architecture: str, epochs: int, training: ChallengerTraining, start: StoredModel | None = None
) -> TrainingSettings:
    """Settings of one training run. A warm start keeps the configuration of the model it starts from."""
    if start is None:
        return TrainingSettings(architecture, epochs=epochs, rate=training.rate, seed=training.seed)
    options = {key: value for key, value in config_to_json(start.model.config).items() if key != "shape"}
    return TrainingSettings(architecture, options, epochs=epochs, rate=training.warm_rate, seed=training.seed)


def _read_all(paths: Sequence[Path]) -> list[Moment]:
    return [moment for path in paths for moment in read_moments(path)]
