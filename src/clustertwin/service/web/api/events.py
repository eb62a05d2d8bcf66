"""Events and verdicts: lists, one with all that is known of it, confirm, dismiss, new normal, undo, many at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query, Request
from pydantic import BaseModel, Field

from clustertwin.core.errors import SettingsError
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.store.event_store import LONGEST_COMMENT, Case, Filter, NoSuchEvent, Verdict
from clustertwin.service.store.quiet_times import hushed
from clustertwin.service.web.api.json_values import case, plain

#: SQLite's integers end here; a larger number in a question is a mistake, not a crash.
MOST = 2**53
EventId = Annotated[str, Field(min_length=1, max_length=64)]


class Said(BaseModel):
    verdict: Verdict
    comment: str = Field("", max_length=LONGEST_COMMENT)


class SaidOfMany(Said):
    ids: list[EventId] = Field(min_length=1, max_length=10_000)


def router(state: ServiceState, clock: Callable[[], float] = time.time) -> APIRouter:
    api = APIRouter(tags=["events"])

    def told(cases: list[Case]) -> list[dict[str, Any]]:
        silences = state.store.quiet.silences(state.snapshot.now_s or clock())
        return [case(one, hushed(one.event, silences)) for one in cases]

    @api.get("/events", summary="Events, newest first")
    def many(
        open: bool | None = None,
        verdict: Literal["", "confirmed", "dismissed", "new-normal"] | None = None,
        node: str = "",
        job: str = "",
        owner: str = "",
        view: str = "",
        start_s: Annotated[float | None, Query(ge=-MOST, le=MOST, allow_inf_nan=False)] = None,
        end_s: Annotated[float | None, Query(ge=-MOST, le=MOST, allow_inf_nan=False)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        offset: Annotated[int, Query(ge=0, le=MOST)] = 0,
    ) -> dict[str, Any]:
        which = Filter(open, verdict, node, job, owner, view, start_s, end_s)
        return {"total": state.store.count(which), "events": told(state.store.events(which, limit, offset))}

    @api.get("/events/{event_id}", summary="One event: why, what was said of it, and others like it")
    def one(event_id: str) -> dict[str, Any]:
        found = _find(state, event_id)
        past = plain(state.store.audit(event_id, limit=100))
        return {**told([found])[0], "alike": told(state.store.alike(found)), "audit": past}

    @api.post("/events/{event_id}/verdict", summary="Confirm, dismiss, or take as the new normal")
    def vet(event_id: str, said: Said, request: Request) -> dict[str, Any]:
        return told(_vet(state, [event_id], said, request, clock()))[0]

    @api.post("/verdicts", summary="One verdict for many events: for all, or where one is unknown for none")
    def vet_many(said: SaidOfMany, request: Request) -> list[dict[str, Any]]:
        return told(_vet(state, said.ids, said, request, clock()))

    @api.post("/events/{event_id}/undo", summary="Take the last verdict back")
    def undo(event_id: str, request: Request) -> dict[str, Any]:
        _find(state, event_id)
        try:
            return told([state.store.undo(event_id, who=request.state.who, now_s=clock())])[0]
        except SettingsError as error:
            raise HTTPException(409, str(error)) from error

    @api.get("/audit", summary="Who did what, newest first")
    def audit(
        subject: str = "",
        before_id: Annotated[int, Query(ge=0, le=MOST)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = plain(state.store.audit(subject, before_id, limit))
        return found

    return api


def _find(state: ServiceState, event_id: str) -> Case:
    try:
        return state.store.event(event_id)
    except NoSuchEvent as error:
        raise HTTPException(404, str(error)) from error


def _vet(state: ServiceState, ids: list[str], said: Said, request: Request, now_s: float) -> list[Case]:
    try:
        return state.store.vet(ids, said.verdict, who=request.state.who, comment=said.comment, now_s=now_s)
    except NoSuchEvent as error:
        raise HTTPException(404, str(error)) from error
