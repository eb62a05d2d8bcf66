"""Presets of the study: options of the command line -> data source and plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from clustertwin.core.errors import SettingsError
from clustertwin.engine import Engine
from clustertwin.telemetry.studies.reference.ensembles import RECIPES, Learn, StudySource
from clustertwin.telemetry.studies.reference.study_run import PARTS, StudyPlan

#: name -> the simulated cluster, and the number of models of each recipe; recordings replace the cluster
PRESETS: dict[str, tuple[StudySource, int]] = {
    "reference": (StudySource(tests=5), 10),
    "quick": (StudySource(nodes=2, threads=16, hours=1.0, test_hours=2.0), 2),
}


@dataclass(frozen=True, slots=True)
class StudyRequest:
    """The options of `twin study`. Zero or an empty string means the value of the preset."""

    what: Sequence[str] = ()  # parts of the study, and directories of recordings
    preset: str = ""
    ensemble: int = 0
    models: str = ""
    epochs: int = 0
    learn: str = "recordings"
    window_s: int = 100
    stride_s: int = 0
    seed: int = 1
    engine: str = "here"
    workers: int = 0
    umap: bool = False


def resolve(request: StudyRequest) -> tuple[StudySource, StudyPlan]:
    """The data source and the plan. Words that name a part are parts; all others are directories."""
    parts = tuple(word for word in request.what if word in PARTS)
    roots = tuple(word for word in request.what if word not in PARTS)
    if missing := [root for root in roots if not Path(root).is_dir()]:
        raise SettingsError(f"{missing[0]!r} is neither a directory nor a part of the study ({', '.join(PARTS)})")
    preset = _one_of("preset", request.preset or ("quick" if roots else "reference"), tuple(PRESETS))
    cluster, size = PRESETS[preset]
    source = replace(cluster, roots=roots, seed=request.seed)
    if roots:
        learn: Learn = _one_of("training data", request.learn, get_args(Learn))
        stride_s = request.stride_s or request.window_s
        source = replace(source, learn=learn, length_s=request.window_s, stride_s=stride_s)
    recipes = tuple(name.strip() for name in request.models.split(";")) if request.models else tuple(RECIPES)
    plan = StudyPlan(
        parts or PARTS,
        recipes,
        request.ensemble or size,
        request.epochs,
        _one_of("engine", request.engine, get_args(Engine)),
        request.workers or None,
        request.umap,
    )
    return source, plan


def _one_of(what: str, word: str, known: tuple[Any, ...]) -> Any:
    if word not in known:
        raise SettingsError(f"unknown {what} {word!r}; possible values: {', '.join(known)}")
    return word
