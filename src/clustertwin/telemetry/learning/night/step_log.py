"""One night's directory: steps that are done once -> their results, whatever kills the process in between.

A step is done when its JSON file is there. What it leaves besides (moments, weights) is written before, whole or not at
all, so a repeated step finds or overwrites it. `at` hears of every place where a crash must do no harm, so that tests
can crash there.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from clustertwin.core import files
from clustertwin.core.errors import InputError

Outcome = Literal["promoted", "kept", "skipped", "halted"]
At = Callable[[str], None]


def nowhere(place: str) -> None:
    """Crash at no place."""


@dataclass(frozen=True, slots=True)
class Night:
    """How a night ended and what was found on the way."""

    day: str
    outcome: Outcome
    because: str
    champion: str  # in service from now on
    before: str = ""  # … and until now
    contestants: list[dict[str, Any]] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)  # of each step
    registry: str = ""  # what became of the record there


class Steps:
    """The directory of a night."""

    def __init__(self, directory: Path, at: At = nowhere, clock: Callable[[], float] = time.perf_counter) -> None:
        self.directory, self.at, self._clock = directory, at, clock
        self.seconds: dict[str, float] = {}
        files.make_directory(directory)

    def once(self, name: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The result of a step, from its file or by doing it."""
        path = self.directory / f"{name}.json"
        if path.exists():
            document = read_document(path)
            self.seconds[name] = document["seconds"]
            result: dict[str, Any] = document["result"]
            return result
        self.at(f"before {name}")
        began_s = self._clock()
        result = work()
        self.seconds[name] = self._clock() - began_s
        self.at(f"after {name}")
        plain = json.dumps({"seconds": self.seconds[name], "result": result}, indent=1)
        files.write(path, plain.encode())
        self.at(f"noted {name}")
        # As a repeated run would read it: tuples are lists now, numbers have gone through text.
        again: dict[str, Any] = json.loads(plain)["result"]
        return again

    def clear(self) -> None:
        shutil.rmtree(self.directory)
        files.make_directory(self.directory)


def read_document(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_text())
        return document
    except (OSError, ValueError) as error:
        raise InputError(
            path, f"not a step of a night: {error}; remove its directory to begin the night anew"
        ) from error
