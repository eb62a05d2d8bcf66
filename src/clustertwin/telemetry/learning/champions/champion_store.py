"""The champion: home/champion.json names the version in service, its hash, its fencing token and its predecessors.

The file is replaced in one step, after everything it refers to is on disk. A change with an older fencing token than
the stored one is refused. The predecessors stay in the file, so that `rollback` can restore them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path

from clustertwin.core import extras, files
from clustertwin.core.errors import InputError, SettingsError, TwinError
from clustertwin.core.foreign_files import read_regular
from clustertwin.core.formatting import shortened
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.detection.detector_store import read
from clustertwin.telemetry.learning.champions.fencing_lock import file_lock
from clustertwin.telemetry.learning.champions.learning_state import LONGEST_REASON
from clustertwin.telemetry.learning.champions.version_store import (
    DIRECTORY,
    add_version,
    digest,
    read_version,
    version_directory,
)
from clustertwin.telemetry.models.model_store import ModelError

FILE = "champion.json"
MOST_BYTES = 1 << 20  # the file has about 3 KB
_PREDECESSORS = 20  # champions that a rollback can reach
_BUNDLED = "bundled with clustertwin"


class StaleFence(TwinError):
    """The champion was changed with a newer fencing token, so this decision no longer applies."""


@dataclass(frozen=True, slots=True)
class Champion:
    """The version in service, since when and why.

    A night's winner must detect as much of the golden set as every champion from `base` on. A new base starts when a
    person promotes a version, or when a person marked part of the day as the new normal: results from before that
    change no longer apply.
    """

    version: str
    sha256: str
    fence: int  # fencing token of the decision
    since_s: float = 0.0
    why: str = ""
    before: tuple[str, ...] = ()  # predecessors, oldest first
    base: str = ""  # empty: all predecessors count

    @property
    def baselines(self) -> tuple[str, ...]:
        """The versions that the next champion is compared with, oldest first."""
        served = (*self.before, self.version)
        places = [i for i, version in enumerate(served) if version == self.base]
        return served[places[-1] :] if places else served


def promote(home: Path, version: str, fence: int, why: str, now_s: float, new_base: bool = True) -> Champion:
    """Put a version in service. It is loaded first: a damaged version never becomes champion.

    Raises `StaleFence` if the champion was changed with a newer token.
    """
    directory = version_directory(home, version)
    read(directory)
    with file_lock(home / "champion.lock"):
        champion = read_champion(home)
        if champion and champion.fence > fence:
            raise StaleFence(
                f"{version} is not promoted: its fencing token {fence} is older than {champion.fence}, "
                f"with which {champion.version} was promoted"
            )
        if champion and champion.version == version:
            return champion
        before = (*champion.before, champion.version)[-_PREDECESSORS:] if champion else ()
        base = version if new_base or champion is None else champion.base
        why = shortened(why, LONGEST_REASON)
        return _write(home, Champion(version, digest(directory), fence, now_s, why, before, base))


def rollback(home: Path, fence: int, now_s: float) -> Champion:
    """Put the newest predecessor that can still be loaded back in service."""
    with file_lock(home / "champion.lock"):
        champion = read_champion(home)
        if champion is None or not champion.before:
            raise SettingsError(f"{home}: no previous champion to roll back to")
        if champion.fence > fence:
            raise StaleFence(
                f"not rolled back: fencing token {fence} is older than {champion.fence}, "
                f"with which {champion.version} was promoted"
            )
        for i in reversed(range(len(champion.before))):
            try:
                read_version(home, champion.before[i])
            except (ModelError, SettingsError):
                continue
            version, before = champion.before[i], champion.before[:i]
            base = champion.base if champion.base in before else version
            why = f"rolled back from {champion.version}"
            return _write(home, Champion(version, digest(home / DIRECTORY / version), fence, now_s, why, before, base))
        raise ModelError(home / DIRECTORY, f"no previous champion can be loaded: {', '.join(champion.before)}")


@contextmanager
def unchanged(home: Path) -> Iterator[Champion | None]:
    """The champion, which nobody changes inside the block."""
    with file_lock(home / "champion.lock"):
        yield read_champion(home)


def read_champion(home: Path) -> Champion | None:
    """The champion; None before the first night, while the bundled model is in service."""
    path = home / FILE
    try:
        return parse_champion(read_regular(path, MOST_BYTES), path)  # a FIFO would stop the loop
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(path, f"cannot read: {error.strerror}") from error


def parse_champion(text: str | bytes, where: Path | str = FILE) -> Champion:
    """The champion that a JSON text names; InputError for any other text."""
    try:
        document = json.loads(text)
        champion = Champion(**document | {"before": tuple(document.get("before", ()))})
        champion.why.encode()  # a lone surrogate cannot be shown
        for name in ("version", "sha256", "base"):
            _check(isinstance(getattr(champion, name), str) and getattr(champion, name).isprintable(), name)
        _check(isinstance(champion.fence, int), "fence")
        _check(isinstance(champion.since_s, int | float) and isfinite(champion.since_s), "since_s")
        _check(isinstance(document.get("before", []), list), "before")
        _check(all(isinstance(version, str) and version.isprintable() for version in champion.before), "before")
        return champion
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise InputError(where, f"does not name a champion: {error}") from error


def _check(holds: bool, name: str) -> None:
    if not holds:
        raise ValueError(f"{name} has no valid value")


def load_champion(home: Path) -> Detector:
    """The detector in service, checked against its hash; the bundled one before the first night."""
    champion = read_champion(home)
    if champion is None:
        bundled: Detector = extras.load("clustertwin.telemetry.detection.bundled:bundled")()
        return bundled
    return load(home, champion)


def load(home: Path, champion: Champion) -> Detector:
    """The champion's detector. Raises `ModelError` if its files are damaged."""
    directory = version_directory(home, champion.version)
    if digest(directory) != champion.sha256:
        raise ModelError(directory, "its SHA-256 differs from champion.json: damaged or foreign files")
    return read(directory)


def recover_champion(home: Path, fence: int, now_s: float) -> tuple[Detector, list[str]]:
    """The detector in service, and notes on what had to be repaired.

    A champion that cannot be loaded is rolled back. If there is no champion yet, or no predecessor can be loaded
    either, the bundled detector is stored and promoted. `StaleFence` if a person has decided meanwhile.
    """
    champion, reason = read_champion(home), ""
    if champion is not None:
        try:
            return load(home, champion), []
        except TwinError as error:
            reason = f"the champion could not be loaded ({error})"
        try:
            rollback(home, fence, now_s)
            return load_champion(home), [f"{reason}: rolled back"]
        except (ModelError, SettingsError):  # no predecessor, or none that can be loaded
            (home / FILE).unlink(missing_ok=True)
    bundled = load_champion(home)
    version = add_version(home, bundled, {"night": "", "why": _BUNDLED})
    promote(home, version, fence, _BUNDLED, now_s)
    return bundled, [f"{reason}: the bundled detector is in service"] if reason else []


def _write(home: Path, champion: Champion) -> Champion:
    files.write(home / FILE, json.dumps(asdict(champion), indent=1))
    return champion
