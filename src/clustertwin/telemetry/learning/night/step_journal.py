"""The journal of one night: each step runs once -> its result, even if the process is killed in between.

A step is done when its JSON file exists. A step writes its other files (moments, weights) before that file, and each of
them atomically, so a repeated step finds or overwrites them. `crash_point` is called wherever a crash must be harmless;
the tests kill the process there.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clustertwin.core import files
from clustertwin.core.errors import InputError, OutputError

CrashPoint = Callable[[str], None]


def no_crash(place: str) -> None:
    """The crash point outside of tests."""


class StepJournal:
    """The steps of a night in its directory: `<step>.json` holds a step's result and its duration."""

    def __init__(
        self, directory: Path, crash_point: CrashPoint = no_crash, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.directory, self.crash_point, self._clock = directory, crash_point, clock
        self.seconds: dict[str, float] = {}
        self._make_directory()

    def once(self, step: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The result of a step: from its file if it is done, otherwise by running `work`."""
        path = self.directory / f"{step}.json"
        if path.exists():
            document = read_document(path)
            self.seconds[step] = document["seconds"]
            stored: dict[str, Any] = document["result"]
            return stored
        self.crash_point(f"before {step}")
        if _identity(self.directory) != self._identity:
            home = self.directory.parent.parent
            raise OutputError(
                f"{home}: was moved, deleted or restored while this night ran; the night ends before {step}"
            )
        started_s = self._clock()
        result = work()
        self.seconds[step] = self._clock() - started_s
        self.crash_point(f"after {step}")
        text = json.dumps({"seconds": self.seconds[step], "result": result}, indent=1)
        files.write(path, text)
        self.crash_point(f"noted {step}")
        # Return what a repeated run would read: JSON turns tuples into lists.
        reread: dict[str, Any] = json.loads(text)["result"]
        return reread

    def has(self, step: str) -> bool:
        """Whether a step is done."""
        return (self.directory / f"{step}.json").exists()

    def clear(self) -> None:
        shutil.rmtree(self.directory)
        self._make_directory()

    def _make_directory(self) -> None:
        files.make_directory(self.directory)
        self._identity = _identity(self.directory)


def _identity(directory: Path) -> tuple[int, int] | None:
    try:
        status = directory.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def read_document(path: Path) -> dict[str, Any]:
    """The document of a step, or of a night."""
    try:
        document: dict[str, Any] = json.loads(path.read_text())
        return document
    except (OSError, ValueError) as error:
        raise InputError(
            path, f"not a document of a night: {error}; remove its directory to run the night again"
        ) from error
