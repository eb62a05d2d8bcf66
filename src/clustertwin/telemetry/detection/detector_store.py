"""A detector as files: the model's two, detector.safetensors (tables) and detector.json (settings and hashes).

The files hold numbers and JSON only, so reading them runs no code. Each file is tied to the others by SHA-256.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from clustertwin.core import files
from clustertwin.core.extras import require
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.views.combination import Combination
from clustertwin.telemetry.detection.views.contract import Arrays, DetectorSettings
from clustertwin.telemetry.detection.views.view_table import VIEWS, make_views
from clustertwin.telemetry.models.model_store import ModelError, StoredModel
from clustertwin.telemetry.models.model_store import read as read_model
from clustertwin.telemetry.models.model_store import save as save_model

FORMAT = 1


def save(directory: Path, detector: Detector) -> None:
    """Write the files; detector.json comes last and makes the detector complete."""
    weights = save_model(directory, detector.stored.name, detector.stored.model, detector.stored.notes)
    content: bytes = require("safetensors.numpy", "models").save(_arrays(detector))
    card = {
        "format": FORMAT,
        "settings": asdict(detector.settings),
        "weights_sha256": weights,
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    files.write(directory / "detector.safetensors", content)
    files.write(directory / "detector.json", json.dumps(card, indent=1))


def read(directory: Path) -> Detector:
    """The detector in a directory, or a `ModelError` that says what is wrong with it."""
    stored = read_model(directory)
    card, tables = directory / "detector.json", directory / "detector.safetensors"
    try:
        plain = json.loads(card.read_bytes())
        content = tables.read_bytes()
        if plain["format"] != FORMAT:
            raise ModelError(card, f"format {plain['format']} is not supported; this version reads format {FORMAT}")
        settings, digest, weights = DetectorSettings(**plain["settings"]), plain["sha256"], plain["weights_sha256"]
    except OSError as error:
        raise ModelError(directory, f"this model was never calibrated: no {Path(error.filename).name}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(card, f"not a detector: {error}") from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise ModelError(tables, "its SHA-256 differs from the one in detector.json")
    if weights != stored.sha256:
        raise ModelError(card, "was calibrated for another model than the one beside it")
    try:
        arrays: Arrays = require("safetensors.numpy", "models").load(content)
        detector = _restore(stored, settings, arrays)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ModelError(tables, f"not the tables of a detector: {error}") from error
    if unknown := sorted({key.split("/")[0] for key in arrays.keys() - _arrays(detector).keys()}):
        known = ", ".join(VIEWS)
        raise ModelError(tables, f"has tables of a view that this version lacks: {', '.join(unknown)} (has {known})")
    return with_sha256(detector)


def with_sha256(detector: Detector) -> Detector:
    """The detector with the hash of its weights, tables and settings."""
    state = {key: value.detach().contiguous() for key, value in detector.stored.model.state_dict().items()}
    digest = hashlib.sha256(require("safetensors.torch", "models").save(state))
    digest.update(require("safetensors.numpy", "models").save(_arrays(detector)))
    digest.update(json.dumps(asdict(detector.settings), sort_keys=True).encode())
    return replace(detector, sha256=digest.hexdigest())


def _arrays(detector: Detector) -> Arrays:
    """The tables of all views and of the combination, with keys such as `habits/300/1/density/mean`."""
    arrays = dict(detector.combination.arrays())
    for view in detector.fitted.values():
        arrays |= view.arrays()
    return arrays


def _restore(stored: StoredModel, settings: DetectorSettings, arrays: Arrays) -> Detector:
    """A view without arrays is not part of the detector."""
    if any(not np.isfinite(array).all() for array in arrays.values()):
        raise ValueError("a number is not finite")
    restored = {name: view.restore(arrays) for name, view in make_views(settings).items()}
    fitted = {name: view for name, view in restored.items() if view.arrays()}
    return Detector(stored, settings, fitted, Combination.restore(arrays))
