"""What was asked for on the command line -> where the data come from, and a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from clustertwin.core.errors import SettingsError
from clustertwin.engine import Engine
from clustertwin.telemetry.studies.reference.ensembles import RECIPES, Learn, Source
from clustertwin.telemetry.studies.reference.study_run import PARTS, Plan

#: name -> the simulated cluster, and models of each recipe; recordings take the place of the cluster
PRESETS: dict[str, tuple[Source, int]] = {
    "reference": (Source(tests=5), 10),
    "quick": (Source(nodes=2, threads=16, hours=1.0, test_hours=2.0), 2),
}


def plan_of(
    what: Sequence[str],
    *,
    preset: str = "",
    ensemble: int = 0,
    models: str = "",
    epochs: int = 0,
    learn: str = "recordings",
    window_s: int = 100,
    stride_s: int = 0,
    seed: int = 1,
    engine: str = "here",
    workers: int = 0,
    umap: bool = False,
) -> tuple[Source, Plan]:
    """Words that name a part are parts, all others are directories. Zeros and empty words: as the preset says."""
    parts, roots = tuple(w for w in what if w in PARTS), tuple(w for w in what if w not in PARTS)
    if missing := [root for root in roots if not Path(root).is_dir()]:
        raise SettingsError(f"{missing[0]!r} is neither a directory nor a part of the study ({', '.join(PARTS)})")
    cluster, size = PRESETS[_one_of("preset", preset or ("quick" if roots else "reference"), tuple(PRESETS))]
    source = replace(cluster, roots=roots, seed=seed)
    if roots:
        chosen: Learn = _one_of("source to learn from", learn, get_args(Learn))
        source = replace(source, learn=chosen, length_s=window_s, stride_s=stride_s or window_s)
    recipes = tuple(name.strip() for name in models.split(";")) if models else tuple(RECIPES)
    where: Engine = _one_of("engine", engine, get_args(Engine))
    return source, Plan(parts or PARTS, recipes, ensemble or size, epochs, where, workers or None, umap, seed=0)


def _one_of(what: str, word: str, known: tuple[Any, ...]) -> Any:
    if word not in known:
        raise SettingsError(f"no {what} {word!r}; there are {', '.join(known)}")
    return word
