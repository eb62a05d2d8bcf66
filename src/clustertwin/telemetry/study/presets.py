"""What was asked for on the command line -> where the data come from, and a plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from clustertwin.core.errors import SettingsError
from clustertwin.engine import Engine
from clustertwin.telemetry.study.ensembles import RECIPES, Source
from clustertwin.telemetry.study.run import PARTS, Plan

#: name -> the simulated cluster, and models of each recipe; recordings take the place of the cluster
PRESETS: dict[str, tuple[Source, int]] = {
    "reference": (Source(tests=5), 10),
    "quick": (Source(nodes=2, threads=16, hours=1.0, test_hours=2.0), 2),
}


def plan_of(
    what: Sequence[str],
    preset: str,
    ensemble: int,
    models: str,
    epochs: int,
    window_s: int,
    seed: int,
    engine: str,
    workers: int,
    umap: bool,
) -> tuple[Source, Plan]:
    """Words that name a part are parts, all others are directories."""
    if preset and preset not in PRESETS:
        raise SettingsError(f"no preset {preset!r}; there are {', '.join(PRESETS)}")
    chosen: Engine | None = next((name for name in get_args(Engine) if name == engine), None)
    if chosen is None:
        raise SettingsError(f"no engine {engine!r}; there are {', '.join(get_args(Engine))}")
    parts, roots = tuple(w for w in what if w in PARTS), tuple(w for w in what if w not in PARTS)
    if missing := [root for root in roots if not Path(root).is_dir()]:
        raise SettingsError(f"{missing[0]!r} is neither a directory nor a part of the study ({', '.join(PARTS)})")
    cluster, size = PRESETS[preset or ("reference" if not roots else "quick")]
    source = Source(
        roots, window_s if roots else 100, cluster.nodes, cluster.threads, cluster.hours, cluster.test_hours,
        cluster.tests, seed,
    )  # fmt: skip
    recipes = tuple(name.strip() for name in models.split(";")) if models else tuple(RECIPES)
    return source, Plan(parts or PARTS, recipes, ensemble or size, epochs, chosen, workers or None, umap, seed=0)
