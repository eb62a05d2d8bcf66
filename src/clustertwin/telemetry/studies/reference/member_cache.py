"""A cache of trained members: `EvaluatedMember` <-> two files, so that an interrupted study can resume.

A member is identified by its settings, by the data on which it was trained and evaluated, and by the version of the
package.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from clustertwin import __version__
from clustertwin.core import files
from clustertwin.core.extras import require
from clustertwin.engine import Engine, each
from clustertwin.telemetry.models.training import TrainingSettings
from clustertwin.telemetry.studies.reference.ensembles import EnsembleMember, EvaluatedMember, train_one


@dataclass(frozen=True, slots=True)
class MemberCache:
    """A directory of members that were trained on the data with this digest."""

    directory: Path
    data: str

    def name(self, member: EnsembleMember) -> str:
        key = json.dumps([__version__, self.data, member.recipe, asdict(member.settings)], sort_keys=True)
        return f"{member.settings.model}-{member.settings.seed}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"

    def save(self, member: EnsembleMember, evaluated: EvaluatedMember) -> None:
        files.make_directory(self.directory)
        weights, results = self._paths(member)
        files.write(weights, require("safetensors.numpy", "models").save(evaluated.weights))
        # The results are written last: if they exist, the member is complete.
        files.write(results, json.dumps(asdict(replace(evaluated, weights={}))))

    def read(self, member: EnsembleMember) -> EvaluatedMember | None:
        """The evaluated member, or None if it is not in the cache."""
        weights, results = self._paths(member)
        if not results.exists():
            return None
        plain = json.loads(results.read_text())
        plain["settings"] = TrainingSettings(**plain["settings"])
        return EvaluatedMember(**plain | {"weights": require("safetensors.numpy", "models").load_file(weights)})

    def _paths(self, member: EnsembleMember) -> tuple[Path, Path]:
        name = self.name(member)
        return self.directory / f"{name}.safetensors", self.directory / f"{name}.json"


def train_missing(
    members: Sequence[EnsembleMember],
    cache: MemberCache,
    engine: Engine = "here",
    workers: int | None = None,
    done: Callable[[int, EvaluatedMember], None] = lambda index, member: None,
) -> list[EvaluatedMember]:
    """All members. Those that are not in the cache are trained in parallel and cached one by one."""
    evaluated = {index: cached for index, member in enumerate(members) if (cached := cache.read(member))}
    missing = [index for index in range(len(members)) if index not in evaluated]
    for index, member in evaluated.items():
        done(index, member)

    def save(position: int, member: EvaluatedMember) -> None:
        cache.save(members[missing[position]], member)
        done(missing[position], member)

    trained = each(train_one, [members[index] for index in missing], engine, workers, save)
    evaluated |= dict(zip(missing, trained, strict=True))
    return [evaluated[index] for index in range(len(members))]
