"""May the model learn tonight? home/learning.json -> frozen, halted with its reason, or neither.

Frozen is a person's wish; halted is the brake: an anomaly was confirmed, and nothing is learned until a person
resumes. A day that was resumed once does not halt again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from clustertwin.core import files
from clustertwin.core.errors import InputError
from clustertwin.telemetry.learning.champions.fencing_lock import held

FILE = "learning.json"
_CLEARED = 60  # resumed days that are remembered


@dataclass(frozen=True, slots=True)
class Halt:
    reason: str
    day: str  # the day that halted it, 2026-11-15
    since_s: float


@dataclass(frozen=True, slots=True)
class LearningState:
    frozen: str = ""  # why; empty: not frozen
    halted: Halt | None = None
    cleared: tuple[str, ...] = ()  # days whose halt a person lifted
    night: str = ""  # the last night that ended, and how
    outcome: str = ""  # promoted, kept, skipped, halted
    because: str = ""
    ended_s: float = 0.0

    @property
    def word(self) -> str:
        """One word for a page or a metric."""
        return "frozen" if self.frozen else "halted" if self.halted else "learning"

    @property
    def reason(self) -> str:
        """Why nothing is learned; empty while it is."""
        return self.frozen or (self.halted.reason if self.halted else "")


def read_state(home: Path) -> LearningState:
    """The state of a home; one that never learned is ready to."""
    path = home / FILE
    try:
        return parse_state(path.read_text(), path)
    except FileNotFoundError:
        return LearningState()
    except OSError as error:
        raise InputError(path, f"cannot be read: {error.strerror}") from error


def parse_state(text: str, where: Path | str = FILE) -> LearningState:
    try:
        plain: dict[str, Any] = json.loads(text)
        halted = plain.pop("halted", None)
        cleared = tuple(plain.pop("cleared", ()))
        return LearningState(**plain, halted=Halt(**halted) if halted else None, cleared=cleared)
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(where, f"not a state of learning: {error}; remove it to begin afresh") from error


def freeze(home: Path, reason: str) -> LearningState:
    """Learn nothing until resumed."""
    return _change(home, lambda state: replace(state, frozen=reason or "frozen by hand"))


def halt(home: Path, reason: str, day: str, now_s: float) -> LearningState:
    """Pull the brake; a brake that is already pulled keeps its first reason."""
    return _change(home, lambda state: replace(state, halted=state.halted or Halt(reason, day, now_s)))


def resume(home: Path) -> LearningState:
    """Let it learn again: thaw, and release the brake for the day that pulled it."""

    def lifted(state: LearningState) -> LearningState:
        days = (*state.cleared, state.halted.day) if state.halted else state.cleared
        return replace(state, frozen="", halted=None, cleared=days[-_CLEARED:])

    return _change(home, lifted)


def ended(home: Path, night: str, outcome: str, because: str, now_s: float) -> LearningState:
    """Note how a night ended, for pages, metrics and alarms."""
    return _change(home, lambda state: replace(state, night=night, outcome=outcome, because=because, ended_s=now_s))


def _change(home: Path, change: Callable[[LearningState], LearningState]) -> LearningState:
    """Read, change and write as one step, so that a person and the night do not undo each other."""
    with held(home / "state.lock"):
        state = change(read_state(home))
        files.write(home / FILE, json.dumps(asdict(state), indent=1).encode())
    return state
