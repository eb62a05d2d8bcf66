"""Trained members on disk: `Judged` <-> two files, so that a study that was cut short goes on with what it has.

A member is known by its settings, by the very seconds it was trained and judged on, and by the version that did it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from clustertwin import __version__
from clustertwin.core.extras import require
from clustertwin.engine import Engine
from clustertwin.telemetry.models.training import TrainingSettings
from clustertwin.telemetry.studies.reference.ensembles import Judged, Member, train_all


@dataclass(frozen=True, slots=True)
class Kept:
    """A directory of members that were trained on the data of this digest."""

    directory: Path
    data: str

    def name(self, member: Member) -> str:
        known_by = json.dumps([__version__, self.data, member.recipe, asdict(member.settings)], sort_keys=True)
        return f"{member.settings.model}-{member.settings.seed}-{hashlib.sha256(known_by.encode()).hexdigest()[:16]}"

    def save(self, member: Member, judged: Judged) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        weights, figures = (self.directory / f"{self.name(member)}{end}" for end in (".safetensors", ".json"))
        draft = weights.with_suffix(".part")
        require("safetensors.numpy", "models").save_file(judged.weights, draft)
        draft.replace(weights)
        # The figures come last: where they are, the member is whole.
        draft.write_text(json.dumps(asdict(replace(judged, weights={}))))
        draft.replace(figures)

    def read(self, member: Member) -> Judged | None:
        """The member as it was judged, or nothing where it is not here."""
        weights, figures = (self.directory / f"{self.name(member)}{end}" for end in (".safetensors", ".json"))
        if not figures.exists():
            return None
        plain = json.loads(figures.read_text())
        plain["settings"] = TrainingSettings(**plain["settings"])
        return Judged(**plain | {"weights": require("safetensors.numpy", "models").load_file(weights)})


def train_missing(
    wanted: Sequence[Member],
    kept: Kept,
    engine: Engine = "here",
    workers: int | None = None,
    done: Callable[[int, Judged], None] = lambda index, judged: None,
) -> list[Judged]:
    """Every member, those that are not kept trained side by side; each is kept as soon as it is judged."""
    found = {index: judged for index, member in enumerate(wanted) if (judged := kept.read(member))}
    missing = [index for index in range(len(wanted)) if index not in found]
    for index, judged in found.items():
        done(index, judged)

    def ended(index: int, judged: Judged) -> None:
        kept.save(wanted[missing[index]], judged)
        done(missing[index], judged)

    made = train_all([wanted[index] for index in missing], engine, workers, ended)
    found |= dict(zip(missing, made, strict=True))
    return [found[index] for index in range(len(wanted))]
