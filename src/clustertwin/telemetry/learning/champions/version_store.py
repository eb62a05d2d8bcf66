"""Stored detector versions: home/models/<version>/, each with a `lineage.json` that says what it was trained from.

A version directory is published in one rename and never changes. `detector.read` loads it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from clustertwin.core import files
from clustertwin.core.errors import SettingsError
from clustertwin.core.foreign_files import parse_json, read_regular
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.detector_store import read, save
from clustertwin.telemetry.models.model_store import MOST_CARD_BYTES, MOST_WEIGHTS_BYTES, ModelError

DIRECTORY, LINEAGE = "models", "lineage.json"


@dataclass(frozen=True, slots=True)
class Version:
    version: str
    directory: Path
    sha256: str
    lineage: dict[str, Any] = field(default_factory=dict)


def add_version(home: Path, detector: Detector, lineage: dict[str, Any]) -> str:
    """Store a detector and return its version. Storing it again changes nothing: the first lineage stays."""
    models = home / DIRECTORY
    files.make_directory(models)
    draft = models / f".{detector.version}.{os.getpid()}"
    shutil.rmtree(draft, ignore_errors=True)
    with files.reporting(draft):
        save(draft, detector)
        files.write(draft / LINEAGE, json.dumps(lineage, indent=1, sort_keys=True))
    directory = models / detector.version
    if not directory.exists():
        files.publish_directory(draft, directory)
        return detector.version
    sha256 = digest(draft, without=LINEAGE)
    shutil.rmtree(draft)
    if digest(directory, without=LINEAGE) != sha256:
        raise ModelError(directory, "holds another model of this version; remove it if nothing uses it")
    return detector.version


def read_version(home: Path, version: str) -> Detector:
    return read(version_directory(home, version))


def versions(home: Path) -> list[Version]:
    """Every stored version, oldest first."""
    directories = [path for path in (home / DIRECTORY).glob("*") if path.is_dir() and not path.name.startswith(".")]
    return [_version(path) for path in sorted(directories, key=lambda path: (path.stat().st_mtime, path.name))]


def find_version(home: Path, name: str) -> Version:
    """The only version with this name or, if there is none, whose name starts with it."""
    stored = versions(home)
    matching = [v for v in stored if v.version == name] or [v for v in stored if v.version.startswith(name)]
    if len(matching) != 1:
        names = ", ".join(v.version for v in matching or stored) or "none"
        raise SettingsError(f"{'more than one' if matching else 'no'} version {name!r}; stored versions: {names}")
    return matching[0]


def version_directory(home: Path, version: str) -> Path:
    directory = home / DIRECTORY / version
    is_name = 0 < len(version.encode(errors="replace")) <= 255 and "/" not in version and not version.startswith(".")
    if not is_name or not directory.is_dir():
        raise ModelError(home / DIRECTORY, f"no version {version[:80]!r}")
    return directory


def digest(directory: Path, without: str = "") -> str:
    """One SHA-256 over the names and contents of all files of a version, optionally without one of them."""
    combined = hashlib.sha256()
    for path in sorted(path for path in directory.iterdir() if path.name != without):
        try:
            content = read_regular(path, MOST_WEIGHTS_BYTES)  # the loop's thread would wait for a FIFO
        except OSError as error:
            raise ModelError(path, f"cannot be read: {error.strerror}") from error
        combined.update(f"{path.name} {hashlib.sha256(content).hexdigest()}\n".encode())
    return combined.hexdigest()


def remove_drafts(home: Path) -> None:
    """Remove the drafts of killed retrainers. Call this only while you hold the retrainers' lock."""
    for draft in (home / DIRECTORY).glob(".*"):
        shutil.rmtree(draft, ignore_errors=True)


def _version(directory: Path) -> Version:
    try:
        lineage = parse_json(read_regular(directory / LINEAGE, MOST_CARD_BYTES))
    except (OSError, ValueError):
        lineage = {}  # copied here by hand; `read_version` checks whether it is a model
    return Version(directory.name, directory, _listed_digest(directory), lineage)


def _listed_digest(directory: Path) -> str:
    """The digest for a list of versions. The files are read again only if one of them has changed."""
    try:
        stats = [(path.name, path.stat()) for path in sorted(directory.iterdir())]
    except OSError:
        return digest(directory)  # its error names the file
    return _known_digest(
        directory, tuple((name, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for name, s in stats)
    )


@lru_cache(maxsize=4096)
def _known_digest(directory: Path, stamps: tuple[tuple[str, int, int, int, int], ...]) -> str:
    return digest(directory)
