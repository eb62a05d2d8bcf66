"""The whole study, or some of its parts: a source of data and settings -> sections, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from clustertwin.core.errors import SettingsError
from clustertwin.engine import Engine
from clustertwin.telemetry.models.contract import Shape
from clustertwin.telemetry.studies.reference.detection_section import detection
from clustertwin.telemetry.studies.reference.ensembles import RECIPES, Judged, Source, load, members, train_all
from clustertwin.telemetry.studies.reference.graph_section import graph
from clustertwin.telemetry.studies.reference.member_cache import Kept, train_missing
from clustertwin.telemetry.studies.reference.reconstruction_section import by_recipe, reconstruction
from clustertwin.telemetry.studies.reference.sampling_section import sampling
from clustertwin.telemetry.studies.reference.section import Section
from clustertwin.telemetry.studies.reference.separability_section import separability

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
    source: Source,
    plan: Plan,
    step: Callable[[str, int, int], None] = lambda what, done, total: None,
    keep: Path | None = None,
) -> list[Section]:
    """Every part asked for; models are trained once for all of them. `step` hears what is done, and of how many.

    With `keep`, a directory, trained models are kept there, and those that are there already are not trained again.
    """
    step("data", 0, 0)
    # Only detection needs several test campaigns: rare anomalies are not in each.
    one = replace(source, tests=1)
    whole = load(source if "detection" in plan.parts else one)
    data = whole if source.roots else replace(whole, test=whole.test[:1])
    sections: list[Section] = []

    def add(name: str, make: Callable[[], Section]) -> None:
        if name not in plan.parts:
            return
        step(name, 0, 0)
        try:
            sections.append(make())
        except SettingsError as reason:  # short recordings cannot answer every question: say so, and go on
            sections.append(Section(name, name.capitalize(), f"Not possible with these data: {reason}."))

    add("sampling", lambda: sampling(data, plan.seed))
    judged: list[Judged] = []
    if set(plan.parts) - {"sampling"}:
        # Only reconstruction and the graph compare ensembles; the other parts look at one model of each.
        size = plan.ensemble if {"reconstruction", "graph"} & set(plan.parts) else 1
        wanted = members(one, plan.recipes, size, plan.epochs, len(data.normal("train")))
        count = 0

        def done(index: int, made: Judged) -> None:
            nonlocal count
            count += 1
            step(f"trained {made.recipe} {made.seed + 1}, error {made.normal:.5f}", count, len(wanted))

        step("training", 0, len(wanted))
        if keep:
            judged = train_missing(wanted, Kept(keep, data.digest()), plan.engine, plan.workers, done)
        else:
            judged = train_all(wanted, plan.engine, plan.workers, done)
    shape = Shape(data.train[0][0].schema, source.length_s)
    models = {name: some[0].model(shape) for name, some in by_recipe(judged).items()}
    add("reconstruction", lambda: reconstruction(data, judged))
    add("detection", lambda: detection(whole, models, plan.recipes[0], plan.seed, step=lambda w: step(w, 0, 0)))
    add("separability", lambda: separability(data, models, plan.seed, plan.umap))
    add("graph", lambda: graph(judged))
    return sections
