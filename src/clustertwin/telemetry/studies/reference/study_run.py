"""Run the study or some of its parts: data source and plan -> sections, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from clustertwin.core.errors import SettingsError
from clustertwin.engine import Engine, each
from clustertwin.telemetry.models.contract import Shape
from clustertwin.telemetry.studies.reference.detection_section import detection_section
from clustertwin.telemetry.studies.reference.ensembles import (
    RECIPES,
    EvaluatedMember,
    StudySource,
    load,
    members,
    train_one,
)
from clustertwin.telemetry.studies.reference.graph_section import graph_section
from clustertwin.telemetry.studies.reference.member_cache import MemberCache, train_missing
from clustertwin.telemetry.studies.reference.reconstruction_section import by_recipe, reconstruction_section
from clustertwin.telemetry.studies.reference.sampling_section import sampling_section
from clustertwin.telemetry.studies.reference.section import Section
from clustertwin.telemetry.studies.reference.separability_section import separability_section
from clustertwin.telemetry.studies.reference.uncertainty_section import uncertainty_section

PARTS = ("sampling", "reconstruction", "detection", "separability", "graph", "uncertainty")


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """The parts to run, and how models are trained."""

    parts: tuple[str, ...] = PARTS
    recipes: tuple[str, ...] = tuple(RECIPES)
    ensemble: int = 10  # models of each recipe
    epochs: int = 0  # 0: those of each recipe
    engine: Engine = "here"
    workers: int | None = None
    umap: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if unknown := set(self.parts) - set(PARTS):
            raise SettingsError(
                f"unknown part {sorted(unknown)[0]!r} of the study; available parts: {', '.join(PARTS)}"
            )
        if unknown := set(self.recipes) - set(RECIPES):
            raise SettingsError(f"unknown recipe {sorted(unknown)[0]!r}; available recipes: {', '.join(RECIPES)}")


def run_study(
    source: StudySource,
    plan: StudyPlan,
    progress: Callable[[str, int, int], None] = lambda step, done, total: None,
    cache: Path | None = None,
) -> list[Section]:
    """Run the parts of the plan; models are trained once for all of them. `progress` gets (step, done, total).

    With `cache`, a directory, trained models are stored there and reused by later runs.
    """
    progress("data", 0, 0)
    # Only detection needs several test campaigns, because a single one may lack rare anomalies.
    single_test = replace(source, tests=1)
    all_data = load(source if "detection" in plan.parts else single_test)
    data = all_data if source.roots else replace(all_data, test=all_data.test[:1])
    sections: list[Section] = []

    def add(name: str, make: Callable[[], Section]) -> None:
        if name not in plan.parts:
            return
        progress(name, 0, 0)
        try:
            sections.append(make())
        except SettingsError as reason:  # e.g. recordings that are too short for this part: report it and go on
            sections.append(Section(name, name.capitalize(), f"Not possible with these data: {reason}."))

    add("sampling", lambda: sampling_section(data, plan.seed))
    evaluated: list[EvaluatedMember] = []
    if set(plan.parts) - {"sampling"}:
        # Only reconstruction and graph compare ensembles; the other parts use one model of each recipe.
        size = plan.ensemble if {"reconstruction", "graph"} & set(plan.parts) else 1
        ensemble = members(single_test, plan.recipes, size, plan.epochs, len(data.normal("train")))
        count = 0

        def done(index: int, member: EvaluatedMember) -> None:
            nonlocal count
            count += 1
            step = f"trained {member.recipe} {member.seed + 1}, error {member.normal:.5f}"
            progress(step, count, len(ensemble))

        progress("training", 0, len(ensemble))
        if cache:
            member_cache = MemberCache(cache, data.digest())
            evaluated = train_missing(ensemble, member_cache, plan.engine, plan.workers, done)
        else:
            evaluated = each(train_one, ensemble, plan.engine, plan.workers, done)
    shape = Shape(data.train[0][0].schema, source.length_s)
    models = {name: ensemble[0].model(shape) for name, ensemble in by_recipe(evaluated).items()}
    add("reconstruction", lambda: reconstruction_section(data, evaluated))
    add(
        "detection",
        lambda: detection_section(
            all_data, models, plan.recipes[0], plan.seed, progress=lambda step: progress(step, 0, 0)
        ),
    )
    add("separability", lambda: separability_section(data, models, plan.seed, plan.umap))
    add("graph", lambda: graph_section(evaluated))
    add("uncertainty", lambda: uncertainty_section(data, models.get("vae")))
    return sections
