"""Is nightly learning on, frozen or halted? home/learning.json -> the state, with its reason.

A person freezes learning. A confirmed anomaly halts it. Both last until a person resumes learning. The day that caused
a halt does not cause another one after that.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from clustertwin.core import files
from clustertwin.core.errors import InputError
from clustertwin.core.foreign_files import parse_json, read_regular
from clustertwin.core.formatting import shortened
from clustertwin.telemetry.learning.champions.fencing_lock import file_lock

FILE = "learning.json"
MOST_BYTES = 1 << 20  # the file has a few KB
LONGEST_REASON = 1000  # characters, here and in champion.json: both files have limits
_CLEARED_DAYS = 60  # how many resumed days the file keeps
_SHADOW_DAYS = 60  # how many days of the shadow the file keeps


@dataclass(frozen=True, slots=True)
class Halt:
    reason: str
    day: str  # the day that caused it, 2026-11-15
    since_s: float


@dataclass(frozen=True, slots=True)
class LearningState:
    frozen: str = ""  # the reason; empty: not frozen
    halted: Halt | None = None
    cleared: tuple[str, ...] = ()  # days whose halt a person lifted
    night: str = ""  # the day of the last night that ended
    outcome: str = ""  # of that night: promoted, kept, skipped or halted
    because: str = ""
    ended_s: float = 0.0
    shadow_ended_s: float | None = None  # 0: in shadow; None: not stored yet, see `shadow`
    shadow_because: str = ""  # why the shadow ended
    shadow_hours: dict[str, float] = field(default_factory=dict)  # day -> thread-hours that were watched in shadow

    @property
    def status(self) -> str:
        """`frozen`, `halted` or `learning`, for pages and metrics."""
        return "frozen" if self.frozen else "halted" if self.halted else "learning"

    @property
    def reason(self) -> str:
        """Why learning is off; empty while it is on."""
        return self.frozen or (self.halted.reason if self.halted else "")


def read_state(home: Path) -> LearningState:
    """The state of a home. A home without the file has learning on."""
    path = home / FILE
    try:
        return parse_state(read_regular(path, MOST_BYTES), path)
    except FileNotFoundError:
        return LearningState()
    except OSError as error:
        raise InputError(path, f"cannot read: {error.strerror}") from error


def parse_state(text: str | bytes, where: Path | str = FILE) -> LearningState:
    try:
        document: dict[str, Any] = parse_json(text if isinstance(text, bytes) else text.encode())
        halted = document.pop("halted", None)
        cleared = tuple(document.pop("cleared", ()))
        state = LearningState(**document, halted=Halt(**halted) if halted else None, cleared=cleared)
        _check(asdict(state), asdict(LearningState()))
        if state.halted:
            _check(asdict(state.halted), asdict(Halt("", "", 0.0)))
        return state
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(where, f"not a learning state: {error}; remove it to start with a new one") from error


def _check(values: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Raise for a value of another type than its default: every page reads them."""
    for name, default in defaults.items():
        types = (int, float) if isinstance(default, float) or name == "shadow_ended_s" else (type(default),)
        if default is None:
            types = (*types, type(None)) if name == "shadow_ended_s" else (dict, type(None))
        if not isinstance(values[name], types):
            raise TypeError(f"{name} has no valid value")


def freeze(home: Path, reason: str) -> LearningState:
    """Turn learning off until `resume`."""
    return _update(home, lambda state: replace(state, frozen=shortened(reason, LONGEST_REASON) or "frozen by hand"))


def halt(home: Path, reason: str, day: str, now_s: float) -> LearningState:
    """Halt learning because of this day. An existing halt keeps its first reason."""
    return _update(home, lambda state: replace(state, halted=state.halted or Halt(reason, day, now_s)))


def resume(home: Path) -> LearningState:
    """Turn learning on again: lift a freeze, and lift a halt for the day that caused it."""

    def resumed(state: LearningState) -> LearningState:
        cleared = (*state.cleared, state.halted.day) if state.halted else state.cleared
        return replace(state, frozen="", halted=None, cleared=cleared[-_CLEARED_DAYS:])

    return _update(home, resumed)


def record_outcome(home: Path, night: str, outcome: str, because: str, now_s: float) -> LearningState:
    """Store how a night ended, for pages, metrics and alerts."""
    return _update(home, lambda state: replace(state, night=night, outcome=outcome, because=because, ended_s=now_s))


def start_shadow(home: Path) -> LearningState:
    """Store that the site is not known yet."""
    return _update(home, lambda state: replace(state, shadow_ended_s=state.shadow_ended_s or 0.0))


def add_shadow_evidence(home: Path, day: str, thread_hours: float) -> LearningState:
    """Store how much of a day was watched in shadow. A day that is counted again replaces its first count."""

    def added(state: LearningState) -> LearningState:
        hours = {**state.shadow_hours, day: round(thread_hours, 3)}
        return replace(state, shadow_hours=dict(sorted(hours.items())[-_SHADOW_DAYS:]))

    return _update(home, added)


def end_shadow(home: Path, because: str, now_s: float) -> LearningState:
    """Store that the site is known from now on. The first end stays."""
    return _update(
        home,
        lambda state: state if state.shadow_ended_s else replace(state, shadow_ended_s=now_s, shadow_because=because),
    )


def _update(home: Path, change: Callable[[LearningState], LearningState]) -> LearningState:
    """Read, change and write under a lock, so that a person and a running night do not overwrite each other."""
    with file_lock(home / "state.lock"):
        state = change(read_state(home))
        files.write(home / FILE, json.dumps(asdict(state), indent=1))
    return state
