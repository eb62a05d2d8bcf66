"""The detector in service: checks champion.json between two scorings -> the new champion, or the current one.

The caller asks once per batch and uses what it got for the whole batch, so every batch is scored by exactly one model.
A champion that cannot be loaded is refused and counted, and the previous detector stays in service.
"""

from __future__ import annotations

import os
from pathlib import Path

from clustertwin.core.errors import describe
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.learning.champions import champion_store


class Handover:
    """Holds the detector in service. `poll` costs one `stat` as long as champion.json does not change."""

    def __init__(self, home: Path, first: Detector) -> None:
        self.home, self.detector = home, first
        self.taken = self.refused = 0  # champions taken into service, and refused
        self.reason = ""  # why the last champion was refused; empty: it was not
        self.before: Detector | None = None  # the detector in service before this one
        self._last_identity: tuple[int, int] | None = None

    def poll(self) -> Detector:
        """The detector to score the next batch with."""
        identity = _identity(self.home / champion_store.FILE)
        if identity == self._last_identity:
            return self.detector
        self._last_identity = identity
        if identity is None:
            return self.detector
        try:
            champion = champion_store.read_champion(self.home)
            if champion is not None:
                detector = champion_store.load(self.home, champion)
                if detector.version != self.detector.version:
                    self.taken, self.before = self.taken + 1, self.detector
                self.detector, self.reason = detector, ""
        except Exception as error:  # a file with a right hash may still hold anything
            self.refused += 1
            self.reason = describe(error)
        return self.detector

    def withdraw(self, reason: str) -> None:
        """Put the previous detector back in service; champion.json must change before another is taken."""
        if self.before is not None:
            self.detector, self.before = self.before, None
            self.taken -= 1
            self.refused += 1
            self.reason = reason


def _identity(path: Path) -> tuple[int, int] | None:
    """Inode and modification time: they change whenever the file is replaced."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
