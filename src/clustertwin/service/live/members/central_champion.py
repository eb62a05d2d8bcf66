"""A node that scores its own threads takes its champion from a central service: its address -> champion.json here.

The card of the central champion names its files with their SHA-256. Each file is checked before it is written. The
whole version is checked, loaded and timed before it is stored, and older ones of the centre are deleted. If anything is
wrong, the detector in service stays, and the reason is named.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, Field, StringConstraints, ValidationError

from clustertwin.core import files
from clustertwin.core.errors import SourceError, TwinError
from clustertwin.telemetry.ingest.sources.http import Endpoint, HttpClient

if TYPE_CHECKING:  # importing it imports torch, which takes seconds
    from clustertwin.service.live.members.fetched_versions import FetchedVersions

CARD = "/api/v1/models/champion"
EVERY_S = 60.0
DEADLINE_S = 30.0
MOST_CARD_BYTES = 64 << 10
#: The files of a version. No other name is written.
FILES = ("detector.json", "detector.safetensors", "lineage.json", "model.json", "weights.safetensors")
#: All files together; the bundled detector has 0.8 MB.
MOST_BYTES = 32 << 20
#: What stays free on the disk, besides four times the files.
LEAST_FREE_BYTES = 256 << 20
#: A version that cannot be loaded is not fetched again for this long.
REFUSED_S = 3600.0

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class ChampionFile(BaseModel):
    sha256: Sha256
    bytes: Annotated[int, Field(ge=0, le=MOST_BYTES)]


class ChampionCard(BaseModel):
    """The version in service at the centre; empty while it uses the bundled detector."""

    version: Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,127})?$")] = ""
    sha256: str = ""
    files: Annotated[dict[str, ChampionFile], Field(max_length=len(FILES))] = {}


class CentralChampion:
    def __init__(self, endpoint: Endpoint, home: Path, clock: Callable[[], float] = time.time) -> None:
        """SettingsError if the token would cross the network unencrypted."""
        self.endpoint, self.home = endpoint.with_safe_token(), home
        self._clock = clock
        self._refused: tuple[str, float, TwinError] | None = None  # the hash of a version, when, and why
        self._http = HttpClient(replace(endpoint, deadline_s=DEADLINE_S, most_bytes=MOST_BYTES, tries=2))

    def turn(self) -> bool:
        """Take the central champion, if it is another than the one here. Whether it was taken."""
        from clustertwin.service.live.members.fetched_versions import FetchedVersions
        from clustertwin.telemetry.learning.champions import champion_store, version_store
        from clustertwin.telemetry.learning.champions.fencing_lock import next_fence

        card = self._card()
        here = champion_store.read_champion(self.home)
        if not card.version or (here is not None and (here.version, here.sha256) == (card.version, card.sha256)):
            return False
        directory, fetched = self.home / version_store.DIRECTORY / card.version, FetchedVersions(self.home)
        if not (directory.is_dir() and version_store.digest(directory) == card.sha256):
            if directory.exists():
                raise SourceError(f"{self.endpoint.url}: its {card.version} differs from the one in {directory}")
            fetched.check(self._clock())
            self._check_room(card)
            self._fetch(card, directory, fetched)
        why = f"champion of {self.endpoint.url}"
        champion = champion_store.promote(self.home, card.version, next_fence(self.home), why, self._clock())
        fetched.delete_old(champion, self._clock())
        return True

    def _card(self) -> ChampionCard:
        where = f"{self.endpoint.url}{CARD}"
        body = self._http.get(CARD, accept="application/json")
        try:
            if len(body) > MOST_CARD_BYTES:
                raise ValueError(f"{len(body)} bytes; the limit is {MOST_CARD_BYTES}")
            card = ChampionCard.model_validate_json(body)
        except ValidationError as error:
            raise SourceError(f"{where}: not the card of a champion: {error.errors()[0]['msg']}") from None
        except ValueError as error:
            raise SourceError(f"{where}: not the card of a champion: {error}") from None
        if card.version and not set(card.files) <= set(FILES):
            raise SourceError(f"{where}: not the files of a champion: {', '.join(sorted(card.files))[:200]}")
        if sum(file.bytes for file in card.files.values()) > MOST_BYTES:
            raise SourceError(f"{where}: more than {MOST_BYTES} bytes of files, which is the limit")
        return card

    def _check_room(self, card: ChampionCard) -> None:
        files.make_directory(self.home)
        needed = 4 * sum(file.bytes for file in card.files.values()) + LEAST_FREE_BYTES
        if shutil.disk_usage(self.home).free < needed:
            raise SourceError(f"{self.endpoint.url}: {card.version} is not fetched: less than {needed} bytes are free")

    def _fetch(self, card: ChampionCard, directory: Path, fetched: FetchedVersions) -> None:
        """Write the files of a version, checked and loaded, and publish them in one rename."""
        if self._refused and self._refused[0] == card.sha256 and abs(self._clock() - self._refused[1]) < REFUSED_S:
            raise self._refused[2]
        from clustertwin.service.live.members.detector_timing import check_speed
        from clustertwin.telemetry.detection.detector_store import read
        from clustertwin.telemetry.learning.champions.version_store import digest

        draft = directory.parent / f".{card.version}.{os.getpid()}"
        shutil.rmtree(draft, ignore_errors=True)
        files.make_directory(draft)
        try:
            for name, file in sorted(card.files.items()):
                content = self._http.get(f"{CARD}/{name}", {"version": card.version})
                if len(content) != file.bytes or hashlib.sha256(content).hexdigest() != file.sha256:
                    raise SourceError(f"{self.endpoint.url}: {name} of {card.version} differs from its SHA-256")
                files.write(draft / name, content)
            if digest(draft) != card.sha256:
                raise SourceError(f"{self.endpoint.url}: the files of {card.version} differ from its SHA-256")
            try:
                check_speed(read(draft))
            except TwinError as error:
                self._refused = card.sha256, self._clock(), error
                raise
            fetched.add(card.version, self._clock())
            files.publish_directory(draft, directory)
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def close(self) -> None:
        self._http.close()
