"""Models and learning, for the page and the API alike: what the home stores, and a change by an admin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fastapi import HTTPException

from clustertwin.core.errors import OutputError, TwinError
from clustertwin.service.live.beside.night_runner import tell_registry
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.telemetry.learning.champions import learning_state as learning
from clustertwin.telemetry.learning.champions.fencing_lock import next_fence

if TYPE_CHECKING:  # importing them imports torch, which takes seconds
    from clustertwin.telemetry.learning.champions.champion_store import Champion
    from clustertwin.telemetry.learning.champions.version_store import Version

ChampionAction = Literal["promote", "rollback"]
LearningAction = Literal["freeze", "resume"]
LONGEST_REASON = learning.LONGEST_REASON
LONGEST_VERSION = 255


@dataclass(frozen=True, slots=True)
class StoredModels:
    champion: Champion | None
    learning: learning.LearningState
    versions: list[Version]  # oldest first
    problems: list[str]  # files that cannot be read


def stored_models(state: ServiceState) -> StoredModels:
    """What the home stores. A file that cannot be read becomes a problem, and the rest is still known."""
    from clustertwin.telemetry.learning.champions import champion_store, version_store

    problems, champion, learning_state = [], None, learning.LearningState()
    try:
        champion = champion_store.read_champion(state.home)
    except TwinError as error:
        problems.append(str(error))
    try:
        learning_state = learning.read_state(state.home)
    except TwinError as error:
        problems.append(str(error))
    return StoredModels(champion, learning_state, version_store.versions(state.home), problems)


def change_champion(
    state: ServiceState, action: ChampionAction, version: str, reason: str, who: str, now_s: float
) -> Champion:
    """Promote a version, or roll back. 409 if that is not possible; `OutputError` if the disk is full."""
    from clustertwin.telemetry.learning.champions import champion_store

    try:
        home = state.teachable()
        fence = next_fence(home)
        if action == "rollback":
            champion = champion_store.rollback(home, fence, now_s)
        else:
            champion = champion_store.promote(home, version, fence, reason or "promoted by hand", now_s)
    except OutputError:
        raise  # a full disk is not the client's mistake
    except TwinError as error:
        raise HTTPException(409, str(error)) from error
    state.store.append_audit(who, action, champion.version, now_s, {"reason": champion.why})
    tell_registry(state.home)
    return champion


def change_learning(
    state: ServiceState, action: LearningAction, reason: str, who: str, now_s: float
) -> learning.LearningState:
    """Freeze or resume nightly learning. Errors are those of `change_champion`."""
    try:
        home = state.teachable()
        changed = learning.freeze(home, reason) if action == "freeze" else learning.resume(home)
    except OutputError:
        raise
    except TwinError as error:
        raise HTTPException(409, str(error)) from error
    state.store.append_audit(who, action, "learning", now_s, {"reason": reason})
    return changed
