"""The detector in service: champion.json is looked at between two scorings -> the new champion, or still the old.

The hand-over is one reference: whoever scores asks once for each batch and keeps what it got, so a batch is scored
wholly by one model, and none is lost or scored twice. A champion that cannot be loaded is refused, counted and named,
and the previous one goes on.
"""

from __future__ import annotations

import os
from pathlib import Path

from clustertwin.core.errors import TwinError
from clustertwin.telemetry.detection.detector import Detector
from clustertwin.telemetry.learning.champions import champion_store


class Handover:
    """Holds the detector in service; `poll` as often as you like, it costs one `stat`."""

    def __init__(self, home: Path, first: Detector) -> None:
        self.home, self.detector = home, first
        self.taken = self.refused = 0
        self.reason = ""  # why the last champion was refused; empty: it was not
        self._seen: tuple[int, int] | None = None

    def poll(self) -> Detector:
        """The detector to score with from now on."""
        mark = _mark(self.home / champion_store.FILE)
        if mark == self._seen:
            return self.detector
        self._seen = mark
        if mark is None:
            return self.detector
        try:
            now = champion_store.read_champion(self.home)
            if now is not None:
                fresh = champion_store.load(self.home, now)
                self.taken += fresh.version != self.detector.version
                self.detector, self.reason = fresh, ""
        except (TwinError, OSError) as error:
            self.refused += 1
            self.reason = str(error)
        return self.detector


def _mark(path: Path) -> tuple[int, int] | None:
    """Changes whenever the file is replaced."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
