"""Models and learning: who is in service, who was, promote, roll back, freeze, resume."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from fastapi import APIRouter, HTTPException, Request
from pydantic import BaseModel, Field

from clustertwin.core.errors import InputError, OutputError, SettingsError, TwinError
from clustertwin.service.live.night_runner import tell_registry
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.web.api.json_values import plain
from clustertwin.telemetry.learning.champions import learning_state as learning
from clustertwin.telemetry.learning.champions.fencing_lock import next_fence

if TYPE_CHECKING:  # with it comes torch, which takes seconds
    from clustertwin.telemetry.learning.champions.champion_store import Champion


class Because(BaseModel):
    reason: str = Field("", max_length=1000)


class Learning(Because):
    action: Literal["freeze", "resume"]


def router(state: ServiceState, clock: Callable[[], float] = time.time) -> APIRouter:
    api = APIRouter(tags=["models"])

    @api.get("/models", summary="The champion, every stored version, and the state of learning")
    def models() -> dict[str, Any]:
        from clustertwin.telemetry.learning.champions import champion_store, version_store

        problems, champion, learns = [], None, learning.LearningState()
        try:
            champion = champion_store.read_champion(state.home)
        except TwinError as error:
            problems.append(str(error))
        try:
            learns = learning.read_state(state.home)
        except TwinError as error:
            problems.append(str(error))
        versions = [
            {"version": one.version, "sha256": one.sha256, "lineage": plain(one.lineage)}
            for one in version_store.versions(state.home)
        ]
        return {
            "in_service": plain(state.snapshot.model),
            "champion": plain(champion),
            "versions": versions,
            "learning": plain(learns),
            "problems": problems,
        }

    @api.post("/models/{version}/promote", summary="Put a stored version into service")
    def promote(version: str, because: Because, request: Request) -> dict[str, Any]:
        from clustertwin.telemetry.learning.champions import champion_store

        why = because.reason or "promoted by hand"

        def do() -> Champion:
            home = state.teachable()
            return champion_store.promote(home, version, next_fence(home), why, clock())

        return done(request, "promote", do)

    @api.post("/models/rollback", summary="Put the last champion back")
    def rollback(request: Request) -> dict[str, Any]:
        from clustertwin.telemetry.learning.champions import champion_store

        def do() -> Champion:
            home = state.teachable()
            return champion_store.rollback(home, next_fence(home), clock())

        return done(request, "rollback", do)

    @api.post("/learning", summary="Freeze the nightly learning, or let it go on")
    def learn(wish: Learning, request: Request) -> dict[str, Any]:
        try:
            if wish.action == "freeze":
                learning.freeze(state.teachable(), wish.reason)
            else:
                learning.resume(state.teachable())
        except (InputError, SettingsError) as error:
            raise HTTPException(409, str(error)) from error
        state.store.note(request.state.who, wish.action, "learning", clock(), {"reason": wish.reason})
        now: dict[str, Any] = plain(learning.read_state(state.home))
        return now

    def done(request: Request, action: str, do: Callable[[], Champion]) -> dict[str, Any]:
        try:
            champion = do()
        except OutputError:
            raise  # a full disk is not the asker's mistake
        except TwinError as error:
            raise HTTPException(409, str(error)) from error
        state.store.note(request.state.who, action, champion.version, clock(), {"reason": champion.why})
        tell_registry(state.home)
        told: dict[str, Any] = plain(champion)
        return told

    return api
