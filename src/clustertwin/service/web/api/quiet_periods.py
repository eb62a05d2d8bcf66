"""Maintenance windows and silences: list those that have not ended, add one, end one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Request
from pydantic import BaseModel, Field

from clustertwin.core.errors import SettingsError
from clustertwin.core.foreign_files import LATEST_S
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.store.quiet_periods import MaintenanceWindow, Silence
from clustertwin.service.web.api.json_values import plain
from clustertwin.service.web.contract import RouteGroup
from clustertwin.service.web.write_budget import WriteBudget

Time = Annotated[float, Field(ge=0, le=LATEST_S, allow_inf_nan=False)]
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
    budget = WriteBudget()

    def now_s() -> float:
        return state.snapshot.now_s or clock()

    @api.get("/maintenance", summary="List maintenance windows that have not ended")
    def windows() -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = plain(state.store.quiet_periods.maintenance(now_s()))
        return answer

    @api.post("/maintenance", status_code=201, summary="Add a maintenance window: its nodes are not scored")
    def add_window(body: NewMaintenance, request: Request) -> dict[str, Any]:
        budget.spend(request.state.who, 1, f"{body.nodes}{body.reason}")
        window = MaintenanceWindow(tuple(body.nodes), body.start_s, body.end_s, body.reason, request.state.who)
        return _added(lambda: state.store.quiet_periods.add_maintenance(window, now_s()))

    @api.delete("/maintenance/{number}", status_code=204, summary="End a maintenance window now")
    def end_window(number: Number, request: Request) -> None:
        if not state.store.quiet_periods.end_maintenance(number, request.state.who, now_s()):
            raise HTTPException(404, f"there is no maintenance window {number}, or it has ended")

    @api.get("/silences", summary="List silences that have not ended")
    def silences() -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = plain(state.store.quiet_periods.silences(now_s()))
        return answer

    @api.post("/silences", status_code=201, summary="Add a silence: matching events are stored but not sent to anyone")
    def add_silence(body: NewSilence, request: Request) -> dict[str, Any]:
        budget.spend(request.state.who, 1, body.model_dump_json())
        silence = Silence(body.until_s, body.node, body.job, body.owner, body.view, body.reason, request.state.who)
        return _added(lambda: state.store.quiet_periods.add_silence(silence, now_s()))

    @api.delete("/silences/{number}", status_code=204, summary="End a silence now")
    def end_silence(number: Number, request: Request) -> None:
        if not state.store.quiet_periods.end_silence(number, request.state.who, now_s()):
            raise HTTPException(404, f"there is no silence {number}, or it has ended")

    return api


ROUTES = RouteGroup(paths=("/maintenance", "/silences"), router=router)


def _added(add: Callable[[], Any]) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = plain(add())
    except SettingsError as error:
        raise HTTPException(422, str(error)) from error
    return answer
