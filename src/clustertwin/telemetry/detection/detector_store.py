"""A detector as files: the model's two, and beside them detector.safetensors and detector.json, the commit.

Only numbers and JSON: nothing that is read can run. Every file is tied to the others by its hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.extras import require
from clustertwin.telemetry.detection.features.observation import LENGTHS_S
from clustertwin.telemetry.detection.views.all_views import NOWHERE, Detector, Habit, Settings
from clustertwin.telemetry.detection.views.gaussian_mixture import Density
from clustertwin.telemetry.detection.views.p_value import Tail
from clustertwin.telemetry.detection.views.region_distance import Clearance, Regions
from clustertwin.telemetry.models.model_store import ModelError
from clustertwin.telemetry.models.model_store import read as read_model
from clustertwin.telemetry.models.model_store import save as save_model

FORMAT = 1
_REGIONS = "regions/"
Arrays = dict[str, NDArray[np.float32]]


def save(directory: Path, detector: Detector) -> None:
    """Write the files; detector.json last."""
    weights = save_model(directory, detector.stored.name, detector.stored.model, detector.stored.notes)
    content: bytes = require("safetensors.numpy", "models").save(_arrays(detector))
    plain = {
        "format": FORMAT,
        "settings": asdict(detector.settings),
        "weights_sha256": weights,
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    for name, some in (("detector.safetensors", content), ("detector.json", json.dumps(plain, indent=1).encode())):
        part = directory / f"{name}.part"
        part.write_bytes(some)
        part.replace(directory / name)


def read(directory: Path) -> Detector:
    """The detector in a directory, or a `ModelError` that says what is wrong with it."""
    stored = read_model(directory)
    card = directory / "detector.json"
    try:
        plain = json.loads(card.read_bytes())
        content = (directory / "detector.safetensors").read_bytes()
        if plain["format"] != FORMAT:
            raise ModelError(card, f"format {plain['format']}, this version reads {FORMAT}")
        settings, digest, weights = Settings(**plain["settings"]), plain["sha256"], plain["weights_sha256"]
    except OSError as error:
        raise ModelError(directory, f"a model that was never calibrated: no {Path(error.filename).name}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(card, f"not a detector: {error}") from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise ModelError(directory / "detector.safetensors", "its SHA-256 is not the one on the card")
    if weights != stored.sha256:
        raise ModelError(card, "was calibrated for another model than the one beside it")
    try:
        arrays = require("safetensors.numpy", "models").load(content)
        whole = Detector(stored, settings, **_tables(arrays))
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ModelError(directory / "detector.safetensors", f"not a detector's numbers: {error}") from error
    return sealed(whole)


def sealed(detector: Detector) -> Detector:
    """The detector with the hash of all that it is made of: weights, tables, settings."""
    state = {key: value.detach().contiguous() for key, value in detector.stored.model.state_dict().items()}
    digest = hashlib.sha256(require("safetensors.torch", "models").save(state))
    digest.update(require("safetensors.numpy", "models").save(_arrays(detector)))
    digest.update(json.dumps(asdict(detector.settings), sort_keys=True).encode())
    return replace(detector, sha256=digest.hexdigest())


def _arrays(detector: Detector) -> Arrays:
    """Every table flat: `habits/300/1/density/mean`."""
    arrays: Arrays = {}
    _put_tails(arrays, "errors", detector.errors)
    _put_tails(arrays, "whole", detector.whole)
    for length_s, habits, apart in zip(LENGTHS_S, detector.habits, detector.apart, strict=True):
        _put_tails(arrays, f"apart/{length_s}", apart)
        for kind, habit in habits.items():
            name = f"habits/{length_s}/{kind}"
            for field in fields(Density):
                arrays[f"{name}/density/{field.name}"] = np.ascontiguousarray(getattr(habit.density, field.name))
            _put_tail(arrays, f"{name}/tail", habit.tail)
    for name, centre in zip(detector.regions.names, detector.regions.centre, strict=True):
        arrays[f"{_REGIONS}{name}"] = centre
    for kind, clearance in detector.clearance.items():
        arrays[f"clearance/{kind}/kept"] = clearance.kept
        _put_tail(arrays, f"clearance/{kind}", clearance.tail)
    return arrays


def _tables(arrays: Mapping[str, NDArray[np.float32]]) -> dict[str, Any]:
    """The other way."""
    if any(not np.isfinite(array).all() for array in arrays.values()):
        raise ValueError("a number that is not finite")
    return {
        "errors": _tails(arrays, "errors"),
        "whole": _tails(arrays, "whole"),
        "apart": tuple(_tails(arrays, f"apart/{length_s}") for length_s in LENGTHS_S),
        "habits": tuple(
            {kind: _habit(arrays, f"habits/{length_s}/{kind}") for kind in _kinds(arrays, f"habits/{length_s}")}
            for length_s in LENGTHS_S
        ),
        "regions": _regions(arrays),
        "clearance": {
            kind: Clearance(arrays[f"clearance/{kind}/kept"], _tail(arrays, f"clearance/{kind}"))
            for kind in _kinds(arrays, "clearance")
        },
    }


def _regions(arrays: Mapping[str, NDArray[np.float32]]) -> Regions:
    """A detector made before there were any has none."""
    names = tuple(sorted(key.removeprefix(_REGIONS) for key in arrays if key.startswith(_REGIONS)))
    return Regions(names, np.stack([arrays[_REGIONS + name] for name in names])) if names else NOWHERE


def _habit(arrays: Mapping[str, NDArray[np.float32]], name: str) -> Habit:
    density = Density(*(arrays[f"{name}/density/{field.name}"] for field in fields(Density)))
    return Habit(density, _tail(arrays, f"{name}/tail"))


def _put_tails(arrays: Arrays, name: str, tails: Mapping[int, Tail]) -> None:
    for kind, tail in tails.items():
        _put_tail(arrays, f"{name}/{kind}", tail)


def _put_tail(arrays: Arrays, name: str, tail: Tail) -> None:
    arrays[f"{name}/knots"] = tail.knots
    arrays[f"{name}/fit"] = np.array([tail.shape, tail.scale, tail.start], np.float32)


def _tails(arrays: Mapping[str, NDArray[np.float32]], name: str) -> dict[int, Tail]:
    return {kind: _tail(arrays, f"{name}/{kind}") for kind in _kinds(arrays, name)}


def _tail(arrays: Mapping[str, NDArray[np.float32]], name: str) -> Tail:
    # Older detectors have two numbers, and a tail that starts where all did then.
    return Tail(arrays[f"{name}/knots"], *arrays[f"{name}/fit"].tolist())


def _kinds(arrays: Mapping[str, NDArray[np.float32]], name: str) -> list[int]:
    depth = name.count("/") + 1
    return sorted({int(key.split("/")[depth]) for key in arrays if key.startswith(f"{name}/")})
