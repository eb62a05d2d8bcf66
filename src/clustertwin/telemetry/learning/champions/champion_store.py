"""Versions and the one that is in service: home/models/<version>/ and home/champion.json, replaced whole and last.

A version is a directory that `detection.read` takes, with a `lineage.json` that says what it was made from. It appears
whole or not at all and never changes. champion.json names one of them, its hash and the fence of whoever decided; the
champions before it stay named, so that one command goes back.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from clustertwin.core import extras, files
from clustertwin.core.errors import InputError, SettingsError, TwinError
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.detector_store import read, save
from clustertwin.telemetry.learning.champions.fencing_lock import held
from clustertwin.telemetry.models.model_store import ModelError

FILE, MODELS, LINEAGE = "champion.json", "models", "lineage.json"
_REMEMBERED = 20  # champions that a rollback can reach


class Outranked(TwinError):
    """Someone with a newer token decided meanwhile; what an older retrainer found does not count any more."""


@dataclass(frozen=True, slots=True)
class Champion:
    """Who is in service, since when and why; `before` are those it followed, oldest first.

    `base` is the first of them, or itself, that the next ones are measured by: what was seen before a person said that
    the cluster has changed, or chose a champion, no longer binds. Empty: all bind.
    """

    version: str
    sha256: str
    fence: int
    since_s: float = 0.0
    why: str = ""
    before: tuple[str, ...] = ()
    base: str = ""

    @property
    def binding(self) -> tuple[str, ...]:
        """The versions that the next champion must not see less than."""
        served = (*self.before, self.version)
        since = [i for i, version in enumerate(served) if version == self.base]
        return served[since[-1] :] if since else served


@dataclass(frozen=True, slots=True)
class Version:
    """One stored model and where it came from."""

    version: str
    directory: Path
    sha256: str
    lineage: dict[str, Any] = field(default_factory=dict)


def enter(home: Path, detector: Detector, lineage: dict[str, Any]) -> str:
    """Store a detector as a version; doing it twice is doing it once, and the first lineage stays."""
    models = home / MODELS
    files.make_directory(models)
    draft = models / f".{detector.version}.{os.getpid()}"
    shutil.rmtree(draft, ignore_errors=True)
    with files.reporting(draft):
        save(draft, detector)
        (draft / LINEAGE).write_text(json.dumps(lineage, indent=1, sort_keys=True))
        for path in draft.iterdir():
            _sync(path)
    final = models / detector.version
    if not final.exists():
        with files.reporting(final):
            draft.rename(final)
            files.sync_directory(models)
        return detector.version
    mine = digest(draft, without=LINEAGE)
    shutil.rmtree(draft)
    if digest(final, without=LINEAGE) != mine:
        raise ModelError(final, "holds another model of this version; remove it if nothing uses it")
    return detector.version


def promote(home: Path, version: str, fence: int, why: str, now_s: float, anew: bool = True) -> Champion:
    """Put a version in service. It is read first: what cannot be loaded never becomes champion.

    `anew`: it is the measure of those that follow, as a person's choice is; a night's is only after a change.
    """
    directory = _directory(home, version)
    read(directory)
    with held(home / "champion.lock"):
        now = read_champion(home)
        if now and now.fence > fence:
            raise Outranked(f"{version} is not promoted: fence {fence} is older than {now.fence} of {now.version}")
        if now and now.version == version:
            return now
        before = (*now.before, now.version)[-_REMEMBERED:] if now else ()
        base = version if anew or now is None else now.base
        return _write(home, Champion(version, digest(directory), fence, now_s, why, before, base))


def rollback(home: Path, fence: int, now_s: float) -> Champion:
    """Put the last champion back that can still be loaded."""
    with held(home / "champion.lock"):
        now = read_champion(home)
        if now is None or not now.before:
            raise SettingsError(f"{home}: no champion before this one to go back to")
        if now.fence > fence:
            raise Outranked(f"not rolled back: fence {fence} is older than {now.fence} of {now.version}")
        for i in reversed(range(len(now.before))):
            try:
                read(_directory(home, now.before[i]))
            except (ModelError, SettingsError):
                continue
            version, before = now.before[i], now.before[:i]
            base = now.base if now.base in before else version
            why = f"rolled back from {now.version}"
            return _write(home, Champion(version, digest(home / MODELS / version), fence, now_s, why, before, base))
        raise ModelError(home / MODELS, f"none of {', '.join(now.before)} can be loaded")


def read_champion(home: Path) -> Champion | None:
    """Who is in service; None before the first night, when the bundled model is."""
    path = home / FILE
    try:
        return parse_champion(path.read_text(), path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(path, f"cannot be read: {error.strerror}") from error


def parse_champion(text: str, where: Path | str = FILE) -> Champion:
    try:
        plain = json.loads(text)
        return Champion(**plain | {"before": tuple(plain.get("before", ()))})
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(where, f"does not name a champion: {error}") from error


def champion(home: Path) -> Detector:
    """The detector in service, checked against its hash; the bundled one where no night has been."""
    now = read_champion(home)
    if now is None:
        bundled: Detector = extras.load("clustertwin.telemetry.detection.bundled:bundled")()
        return bundled
    return load(home, now)


def load(home: Path, now: Champion) -> Detector:
    """The champion's detector, or a `ModelError` that says what is wrong with it."""
    directory = _directory(home, now.version)
    if digest(directory) != now.sha256:
        raise ModelError(directory, "its SHA-256 is not the one in champion.json: damaged or foreign")
    return read(directory)


def read_version(home: Path, version: str) -> Detector:
    """Any stored version's detector."""
    return read(_directory(home, version))


def versions(home: Path) -> list[Version]:
    """Every stored version, oldest first."""
    found = [path for path in (home / MODELS).glob("*") if path.is_dir() and not path.name.startswith(".")]
    return [_version(path) for path in sorted(found, key=lambda path: (path.stat().st_mtime, path.name))]


def find(home: Path, name: str) -> Version:
    """The one version of this name, or whose name begins so."""
    all_of_them = versions(home)
    named = [v for v in all_of_them if v.version == name] or [v for v in all_of_them if v.version.startswith(name)]
    if len(named) != 1:
        there = ", ".join(v.version for v in named or all_of_them) or "none"
        raise SettingsError(f"{'more than one' if named else 'no'} version {name!r}; there are {there}")
    return named[0]


def digest(directory: Path, without: str = "") -> str:
    """One hash over the names and contents of all files of a version, but one."""
    whole = hashlib.sha256()
    for path in sorted(path for path in directory.iterdir() if path.name != without):
        whole.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return whole.hexdigest()


def sweep(home: Path) -> None:
    """Remove drafts that a killed retrainer left; only under the retrainers' lock."""
    for draft in (home / MODELS).glob(".*"):
        shutil.rmtree(draft, ignore_errors=True)


def _directory(home: Path, version: str) -> Path:
    directory = home / MODELS / version
    if not version or "/" in version or version.startswith(".") or not directory.is_dir():
        raise ModelError(home / MODELS, f"no version {version!r}")
    return directory


def _version(directory: Path) -> Version:
    try:
        lineage = json.loads((directory / LINEAGE).read_text())
    except (OSError, ValueError):
        lineage = {}  # put here by hand; `read` decides whether it is a model
    return Version(directory.name, directory, digest(directory), lineage)


def _write(home: Path, fresh: Champion) -> Champion:
    files.write(home / FILE, json.dumps(asdict(fresh), indent=1).encode())
    return fresh


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
