"""A detector: an autoencoder and how its views look on normal data -> one calibrated score for every thread.

detector = calibrate(stored, (moment for moment, _ in moments(normal_traces)))
scores = detector.score(moment)
alarming = scores.score > detector.threshold
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.detection.moment import Moment
from clustertwin.telemetry.detection.scores import Scores
from clustertwin.telemetry.models.contract import Batch, errors
from clustertwin.telemetry.models.store import ModelError, Stored
from clustertwin.telemetry.models.store import read as read_model
from clustertwin.telemetry.models.store import save as save_model


@dataclass(frozen=True, slots=True)
class Settings:
    false_alarm_rate: float = 1e-3  # of normal windows, stated and checked on data not calibrated on
    enough: float = 0.8  # of a window's seconds must be valid, else its score is unknown


@dataclass(frozen=True, slots=True)
class Detector:
    """Score a moment; `threshold` is where normal threads exceed it at the stated rate."""

    stored: Stored
    settings: Settings
    tail: NDArray[np.float32]  # sorted normal errors

    @property
    def version(self) -> str:
        return f"{self.stored.name}-{self.stored.sha256[:12]}"

    @property
    def views(self) -> tuple[str, ...]:
        return ("reconstruction",)

    @property
    def threshold(self) -> float:
        return -float(np.log10(self.settings.false_alarm_rate))

    def score(self, moment: Moment) -> Scores:
        embedding, error = _evaluate(self.stored, moment)
        known = moment.settled & (moment.windows()[1].mean(1) >= self.settings.enough)
        above = len(self.tail) - np.searchsorted(self.tail, error, side="left")
        surprise = -np.log10((above + 1) / (len(self.tail) + 1)).astype(np.float32)
        surprise[~known] = np.nan
        return Scores(surprise, surprise[:, None], self.views, error, embedding)


def calibrate(stored: Stored, normal: Iterable[Moment], settings: Settings = Settings()) -> Detector:
    """Learn what normal looks like from moments that no model was trained on."""
    seen = [_evaluate(stored, moment)[1][moment.settled & moment.windows()[1].all(1)] for moment in normal]
    if not sum(map(len, seen)):
        raise SettingsError("nothing to calibrate on: no settled, valid window among the moments")
    return Detector(stored, settings, np.sort(np.concatenate(seen)))


def save(directory: Path, detector: Detector) -> None:
    """The model's two files, and beside them what was calibrated."""
    save_model(directory, detector.stored.name, detector.stored.model, detector.stored.notes)
    plain = {"settings": asdict(detector.settings), "tail": detector.tail.tolist()}
    (directory / "detector.json").write_text(json.dumps(plain))


def read(directory: Path) -> Detector:
    """The detector in a directory, or a `ModelError` that says what is wrong with it."""
    stored = read_model(directory)
    try:
        plain = json.loads((directory / "detector.json").read_bytes())
        return Detector(stored, Settings(**plain["settings"]), np.array(plain["tail"], np.float32))
    except OSError as error:
        raise ModelError(directory, "no detector.json: a model that was never calibrated") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(directory / "detector.json", f"not a detector: {error}") from error


@torch.no_grad()
def _evaluate(stored: Stored, moment: Moment) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    values, valid = moment.windows(stored.model.config.shape.length)
    batch = Batch(torch.from_numpy(values.copy()), torch.from_numpy(valid.copy()), torch.arange(len(values)))
    z, reconstruction = stored.model(batch)
    return z.numpy(), errors(batch, reconstruction).numpy()
