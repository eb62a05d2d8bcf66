"""Models and learning: show the champion and the stored versions; promote, roll back, freeze and resume."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from clustertwin.core.errors import InputError
from clustertwin.core.foreign_files import read_regular
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.web.api.json_values import plain
from clustertwin.service.web.contract import RouteGroup
from clustertwin.service.web.model_changes import (
    LONGEST_REASON,
    LearningAction,
    change_champion,
    change_learning,
    stored_models,
)

if TYPE_CHECKING:  # importing it imports torch, which takes seconds
    from clustertwin.telemetry.learning.champions.champion_store import Champion


#: The longest file of a champion; the bundled detector has 0.8 MB in all.
MOST_FILE_BYTES = 256 << 20


class PromotionRequest(BaseModel):
    reason: str = Field("", max_length=LONGEST_REASON)


class LearningRequest(PromotionRequest):
    action: LearningAction


def router(state: ServiceState, clock: Callable[[], float] = time.time) -> APIRouter:
    api = APIRouter(tags=["models"])

    @api.get("/models", summary="Show the champion, every stored version and the state of learning")
    def models() -> dict[str, Any]:
        stored = stored_models(state)
        versions = [
            {"version": version.version, "sha256": version.sha256, "lineage": plain(version.lineage)}
            for version in stored.versions
        ]
        return {
            "in_service": plain(state.snapshot.model),
            "champion": plain(stored.champion),
            "versions": versions,
            "learning": plain(stored.learning),
            "shadow": plain(state.shadow),
            "problems": stored.problems,
        }

    @api.get("/models/champion", summary="Show the champion and its files, for a node that scores its own threads")
    def champion_card() -> dict[str, Any]:
        champion, directory = champion_files()
        if champion is None or directory is None:
            return {"version": "", "sha256": "", "files": {}}
        listed = {}
        for path in _files(directory):  # one after the other: together they may fill the memory
            content = _content(path)
            listed[path.name] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        return {"version": champion.version, "sha256": champion.sha256, "files": listed}

    @api.get("/models/champion/{name}", summary="Send one file of the champion")
    def champion_file(name: str, version: str = "") -> Response:
        champion, directory = champion_files()
        if champion is None or directory is None or name not in {path.name for path in _files(directory)}:
            raise HTTPException(404, f"the champion has no file {name[:80]!r}")
        if version not in ("", champion.version):
            raise HTTPException(409, f"the champion is {champion.version} now")
        return Response(_content(directory / name), media_type="application/octet-stream")

    def champion_files() -> tuple[Champion | None, Path | None]:
        from clustertwin.telemetry.learning.champions import champion_store, version_store

        champion = champion_store.read_champion(state.home)
        return champion, version_store.version_directory(state.home, champion.version) if champion else None

    @api.post("/models/{version}/promote", summary="Put a stored version into service")
    def promote(version: str, body: PromotionRequest, request: Request) -> dict[str, Any]:
        champion = change_champion(state, "promote", version, body.reason, request.state.who, clock())
        answer: dict[str, Any] = plain(champion)
        return answer

    @api.post("/models/rollback", summary="Put the previous champion back into service")
    def rollback(request: Request) -> dict[str, Any]:
        answer: dict[str, Any] = plain(change_champion(state, "rollback", "", "", request.state.who, clock()))
        return answer

    @api.post("/learning", summary="Freeze or resume nightly learning")
    def learn(body: LearningRequest, request: Request) -> dict[str, Any]:
        answer: dict[str, Any] = plain(change_learning(state, body.action, body.reason, request.state.who, clock()))
        return answer

    return api


ROUTES = RouteGroup(paths=("/models", "/learning"), router=router, change_role="admin")


def _files(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError as error:  # it was deleted meanwhile
        raise InputError(directory, f"cannot be read: {error.strerror}") from error


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, MOST_FILE_BYTES)
    except OSError as error:
        raise InputError(path, f"cannot be read: {error.strerror}") from error
