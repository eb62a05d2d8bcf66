"""The versions that a home has from a central service: how many came in a day, and which are deleted again.

Their names and times are in HOME/champion-fetches.json. A version that a person has stored is not there, and stays.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from clustertwin.core import files
from clustertwin.core.durations import DAY_S
from clustertwin.core.errors import SourceError
from clustertwin.core.foreign_files import parse_json, read_regular
from clustertwin.telemetry.learning.champions.champion_store import Champion
from clustertwin.telemetry.learning.champions.version_store import DIRECTORY

FILE = "champion-fetches.json"
#: New versions in a day. Nightly learning has one a day.
MOST_A_DAY = 6
#: Predecessors of the champion that stay, for a rollback.
KEPT_BEFORE = 2
_MOST_BYTES = 1 << 20
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")  # as `ChampionCard` has it


class FetchedVersions:
    def __init__(self, home: Path) -> None:
        self._home = home

    def check(self, now_s: float) -> None:
        """SourceError if no other version may be fetched today."""
        today = sum(_is_today(at_s, now_s) for at_s in self._read().values())
        if today >= MOST_A_DAY:
            raise SourceError(f"the centre changes its champion too often: {today} new versions in a day")

    def add(self, version: str, now_s: float) -> None:
        """Note a version, before it is stored."""
        files.make_directory(self._home)
        self._write(self._read() | {version: now_s})

    def delete_old(self, champion: Champion, now_s: float) -> None:
        """Delete the versions from the centre that are neither in service nor among the last predecessors."""
        kept = {champion.version, champion.base, *champion.before[-KEPT_BEFORE:]}
        fetched = self._read()
        for version in fetched.keys() - kept:
            shutil.rmtree(self._home / DIRECTORY / version, ignore_errors=True)
        left = {version: at_s for version, at_s in fetched.items() if version in kept or _is_today(at_s, now_s)}
        if left != fetched:
            self._write(left)

    def _read(self) -> dict[str, float]:
        try:
            document = parse_json(read_regular(self._home / FILE, _MOST_BYTES))
            # Directories of these names are deleted: `..` would be the home.
            return {version: float(at_s) for version, at_s in document.items() if _VERSION.fullmatch(version)}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _write(self, fetched: dict[str, float]) -> None:
        files.write(self._home / FILE, json.dumps(fetched, indent=1))


def _is_today(at_s: float, now_s: float) -> bool:
    return abs(now_s - at_s) < DAY_S  # the clock may have been set back
