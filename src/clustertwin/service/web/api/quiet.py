"""Maintenance windows and silences: those that hold, a new one, the end of one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Request
from pydantic import BaseModel, Field

from clustertwin.core.errors import SettingsError
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.store.quiet_times import Maintenance, Silence
from clustertwin.service.web.api.json_values import plain

Time = Annotated[float, Field(ge=0, le=2**53, allow_inf_nan=False)]
Pattern = Annotated[str, Field(max_length=200)]
Number = Annotated[int, Path(ge=1, le=2**53)]


class NewMaintenance(BaseModel):
    nodes: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(min_length=1, max_length=1000)
    start_s: Time
    end_s: Time
    reason: str = Field("", max_length=1000)


class NewSilence(BaseModel):
    until_s: Time
    node: Pattern = ""
    job: Pattern = ""
    owner: Pattern = ""
    view: Pattern = ""
    reason: str = Field("", max_length=1000)


def router(state: ServiceState, clock: Callable[[], float] = time.time) -> APIRouter:
    api = APIRouter(tags=["quiet"])

    def now_s() -> float:
        return state.snapshot.now_s or clock()

    @api.get("/maintenance", summary="Maintenance windows that have not ended")
    def windows() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = plain(state.store.quiet.maintenance(now_s()))
        return found

    @api.post("/maintenance", status_code=201, summary="Nodes that are not judged for a time")
    def add_window(new: NewMaintenance, request: Request) -> dict[str, Any]:
        window = Maintenance(tuple(new.nodes), new.start_s, new.end_s, new.reason, request.state.who)
        return _added(lambda: state.store.quiet.add_maintenance(window, now_s()))

    @api.delete("/maintenance/{number}", status_code=204, summary="Let one end now")
    def end_window(number: Number, request: Request) -> None:
        if not state.store.quiet.end_maintenance(number, request.state.who, now_s()):
            raise HTTPException(404, f"no maintenance window {number} that has not ended")

    @api.get("/silences", summary="Silences that have not ended")
    def silences() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = plain(state.store.quiet.silences(now_s()))
        return found

    @api.post("/silences", status_code=201, summary="Events that are recorded, and nobody is told of")
    def add_silence(new: NewSilence, request: Request) -> dict[str, Any]:
        silence = Silence(new.until_s, new.node, new.job, new.owner, new.view, new.reason, request.state.who)
        return _added(lambda: state.store.quiet.add_silence(silence, now_s()))

    @api.delete("/silences/{number}", status_code=204, summary="Let one end now")
    def end_silence(number: Number, request: Request) -> None:
        if not state.store.quiet.end_silence(number, request.state.who, now_s()):
            raise HTTPException(404, f"no silence {number} that has not ended")

    return api


def _added(add: Callable[[], Any]) -> dict[str, Any]:
    try:
        told: dict[str, Any] = plain(add())
    except SettingsError as error:
        raise HTTPException(422, str(error)) from error
    return told
