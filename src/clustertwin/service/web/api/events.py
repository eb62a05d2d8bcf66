"""Events and verdicts: list and show events; confirm, dismiss, mark as new normal or undo, one event or many."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query, Request
from pydantic import BaseModel, Field

from clustertwin.core.errors import SettingsError
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.store.event_store import LONGEST_COMMENT, Case, Filter, NoSuchEvent, Verdict
from clustertwin.service.store.quiet_periods import is_silenced
from clustertwin.service.web.api.json_values import case_json, plain
from clustertwin.service.web.contract import RouteGroup
from clustertwin.service.web.write_budget import WriteBudget

#: The largest number a request may contain: a JSON client cannot represent larger integers, and SQLite's end at 2**63.
LARGEST = 2**53
EventId = Annotated[str, Field(min_length=1, max_length=64)]
Second = Annotated[float | None, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]


class EventQuery(BaseModel):
    """The query string of a list of events. An empty or absent value matches every event."""

    open: bool | None = None
    verdict: Literal["", "confirmed", "dismissed", "new-normal"] | None = None
    node: str = ""
    job: str = ""
    owner: str = ""
    view: str = ""
    start_s: Second = None
    end_s: Second = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    offset: Annotated[int, Field(ge=0, le=LARGEST)] = 0

    @property
    def filter(self) -> Filter:
        return Filter(**self.model_dump(exclude={"limit", "offset"}))


class VerdictRequest(BaseModel):
    verdict: Verdict
    comment: str = Field("", max_length=LONGEST_COMMENT)


class BulkVerdictRequest(VerdictRequest):
    ids: list[EventId] = Field(min_length=1, max_length=10_000)


def router(state: ServiceState, clock: Callable[[], float] = time.time) -> APIRouter:
    api = APIRouter(tags=["events"])
    budget = WriteBudget()

    def as_json(cases: list[Case]) -> list[dict[str, Any]]:
        silences = state.store.quiet_periods.silences(state.snapshot.now_s or clock())
        shadow = state.shadow
        return [case_json(case, is_silenced(case.event, silences), shadow.covers(case.event.seen_s)) for case in cases]

    def store_verdict(ids: list[str], body: VerdictRequest, who: str) -> list[Case]:
        budget.spend(who, len(ids), body.comment)
        try:
            return state.store.vet(ids, body.verdict, who=who, comment=body.comment, now_s=clock())
        except NoSuchEvent as error:
            raise HTTPException(404, str(error)) from error

    @api.get("/events", summary="List events, newest first")
    def list_events(query: Annotated[EventQuery, Query()]) -> dict[str, Any]:
        cases = state.store.events(query.filter, query.limit, query.offset)
        return {"total": state.store.count(query.filter), "events": as_json(cases)}

    @api.get("/events/{event_id}", summary="Show an event with its explanation, its verdicts and similar events")
    def show_event(event_id: str) -> dict[str, Any]:
        case = _find(state, event_id)
        audit = plain(state.store.audit(event_id, limit=100))
        return {**as_json([case])[0], "alike": as_json(state.store.alike(case)), "audit": audit}

    @api.post("/events/{event_id}/verdict", summary="Confirm or dismiss an event, or mark it as the new normal")
    def vet(event_id: str, body: VerdictRequest, request: Request) -> dict[str, Any]:
        return as_json(store_verdict([event_id], body, request.state.who))[0]

    @api.post("/verdicts", summary="Give many events the same verdict; if one of them does not exist, none is changed")
    def vet_many(body: BulkVerdictRequest, request: Request) -> list[dict[str, Any]]:
        return as_json(store_verdict(body.ids, body, request.state.who))

    @api.post("/events/{event_id}/undo", summary="Undo the last verdict")
    def undo(event_id: str, request: Request) -> dict[str, Any]:
        _find(state, event_id)
        budget.spend(request.state.who, 1, "x" * LONGEST_COMMENT)
        try:
            return as_json([state.store.undo(event_id, who=request.state.who, now_s=clock())])[0]
        except SettingsError as error:
            raise HTTPException(409, str(error)) from error

    @api.get("/audit", summary="List the audit log, newest first")
    def audit(
        subject: str = "",
        before_id: Annotated[int, Query(ge=0, le=LARGEST)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = plain(state.store.audit(subject, before_id, limit))
        return entries

    return api


ROUTES = RouteGroup(paths=("/events", "/verdicts", "/audit"), router=router)


def _find(state: ServiceState, event_id: str) -> Case:
    try:
        return state.store.event(event_id)
    except NoSuchEvent as error:
        raise HTTPException(404, str(error)) from error
