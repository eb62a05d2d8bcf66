"""The port to a model registry: records of nights and the version in service -> a place where people look them up."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class RegisteredVersion:
    """The best challenger of an architecture that did not win."""

    model: str  # its directory
    version: str
    sha256: str


@dataclass(frozen=True, slots=True)
class NightRecord:
    """One night, as it is registered. Every contestant becomes a child run of the night's run."""

    name: str  # the night's day
    params: dict[str, str]
    metrics: dict[str, float]
    runs: dict[str, dict[str, float]]  # contestant -> metrics
    files: str  # directory of the night's documents and figures
    model: str = ""  # directory of the best challenger; empty: there was none
    version: str = ""
    sha256: str = ""
    others: dict[str, RegisteredVersion] = field(default_factory=dict)  # challenger -> the best of its architecture


def night_record_of(document: dict[str, Any]) -> NightRecord:
    """The record that was written by `asdict`; TypeError or AttributeError if it is not one."""
    others = {name: RegisteredVersion(**row) for name, row in document.get("others", {}).items()}
    return NightRecord(**{**document, "others": others})


class Registry(Protocol):
    """Both methods are idempotent, and raise `SourceError` if the registry does not answer."""

    def add_night(self, record: NightRecord) -> str: ...

    def set_champion(self, version: str, directory: Path, sha256: str) -> None: ...
