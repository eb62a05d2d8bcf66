"""The whole study, or some of its parts: a source of data and settings -> sections, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from clustertwin.core.errors import SettingsError
from clustertwin.engine import Engine
from clustertwin.telemetry.models.contract import Shape
from clustertwin.telemetry.study.detection import detection
from clustertwin.telemetry.study.ensembles import RECIPES, Judged, Source, load, members, train_all
from clustertwin.telemetry.study.graph import graph
from clustertwin.telemetry.study.reconstruction import by_recipe, reconstruction
from clustertwin.telemetry.study.sampling import sampling
from clustertwin.telemetry.study.section import Section
from clustertwin.telemetry.study.separability import separability

PARTS = ("sampling", "reconstruction", "detection", "separability", "graph")


@dataclass(frozen=True, slots=True)
class Plan:
    parts: tuple[str, ...] = PARTS
    recipes: tuple[str, ...] = tuple(RECIPES)
    ensemble: int = 10  # models of each recipe
    epochs: int = 0  # 0: as each recipe says
    engine: Engine = "here"
    workers: int | None = None
    umap: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if unknown := set(self.parts) - set(PARTS):
            raise SettingsError(f"no part {sorted(unknown)[0]!r} of the study; there are {', '.join(PARTS)}")
        if unknown := set(self.recipes) - set(RECIPES):
            raise SettingsError(f"no recipe {sorted(unknown)[0]!r}; there are {', '.join(RECIPES)}")


def run(
    source: Source, plan: Plan, step: Callable[[str, int, int], None] = lambda what, done, total: None
) -> list[Section]:
    """Every part asked for; models are trained once for all of them. `step` hears what is done, and of how many."""
    step("data", 0, 0)
    data = load(source)
    sections: dict[str, Section] = {}
    if "sampling" in plan.parts:
        step("sampling", 0, 0)
        sections["sampling"] = sampling(data, plan.seed)
    judged: list[Judged] = []
    if set(plan.parts) - {"sampling"}:
        # Only reconstruction and the graph compare ensembles; the other parts look at one model of each.
        size = plan.ensemble if {"reconstruction", "graph"} & set(plan.parts) else 1
        wanted = members(source, plan.recipes, size, plan.epochs)
        count = 0

        def done(index: int, one: Judged) -> None:
            nonlocal count
            count += 1
            step(f"trained {one.recipe} {one.seed + 1}, error {one.normal:.5f}", count, len(wanted))

        step("training", 0, len(wanted))
        judged = train_all(wanted, plan.engine, plan.workers, done)
    shape = Shape(data.train[0][0].schema, source.length_s)
    models = {name: some[0].model(shape) for name, some in by_recipe(judged).items()}
    if "reconstruction" in plan.parts:
        sections["reconstruction"] = reconstruction(data, judged)
    if "detection" in plan.parts:
        default = plan.recipes[0]
        sections["detection"] = detection(data, models, default, plan.seed, step=lambda what: step(what, 0, 0))
    if "separability" in plan.parts:
        step("separability", 0, 0)
        sections["separability"] = separability(data, models, plan.seed, plan.umap)
    if "graph" in plan.parts:
        sections["graph"] = graph(judged)
    return [sections[name] for name in PARTS if name in sections]
