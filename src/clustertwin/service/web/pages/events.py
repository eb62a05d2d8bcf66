"""Events: the list, to judge many at once, and each with its whole reason; a person says what it was, or undoes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, HTTPException, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel

from clustertwin.core import formatting
from clustertwin.core.errors import SettingsError
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.store.event_store import Case, Filter, NoSuchEvent
from clustertwin.service.store.quiet_times import hushed
from clustertwin.service.web.pages.embedding import nearest
from clustertwin.service.web.pages.event_picture import event_picture
from clustertwin.service.web.pages.rendering import render

ROWS = 100
State = Literal["open", "closed", "all"]
Said = Literal["any", "none", "confirmed", "dismissed", "new-normal"]
Action = Literal["confirmed", "dismissed", "new-normal", "undo"]
DONE = {"confirmed": "confirmed", "dismissed": "dismissed", "new-normal": "taken as the new normal", "undo": "undone"}


class Which(BaseModel):
    """What the list shows."""

    status: State = "open"
    said: Said = "any"
    node: str = ""
    job: str = ""
    page: int = 1

    @property
    def filter(self) -> Filter:
        verdict = {"any": None, "none": ""}.get(self.said, self.said)
        wanted = {"open": True, "closed": False, "all": None}[self.status]
        return Filter(open=wanted, verdict=verdict, node=self.node, job=self.job)


class Judging(Which):
    """What is said of some of those shown."""

    action: Action
    event: list[str]
    comment: str = ""


def router(state: ServiceState, clock: Callable[[], float] = time.time) -> APIRouter:
    pages = APIRouter(include_in_schema=False)

    def listed(request: Request, which: Which, done: str = "", ids: Sequence[str] = ()) -> HTMLResponse:
        found = state.store.count(which.filter)
        last = max(-(-found // ROWS), 1)
        page = min(max(which.page, 1), last)
        cases = state.store.events(which.filter, ROWS, (page - 1) * ROWS)
        about = {**which.model_dump(), "page": page, "last": last, "found": found, "done": done, "ids": ids}
        return render(request, state, "events.html", cases=cases, silenced=silenced(cases), **about)

    def silenced(cases: list[Case]) -> set[str]:
        silences = state.store.quiet.silences(state.snapshot.now_s or clock())
        return {case.id for case in cases if hushed(case.event, silences)}

    @pages.get("/events")
    def many(request: Request, which: Annotated[Which, Query()]) -> HTMLResponse:
        return listed(request, which)

    @pages.post("/events")
    def judge_many(request: Request, said: Annotated[Judging, Form()]) -> HTMLResponse:
        _judge(state, request.state.who, clock(), said.event, said.action, said.comment)
        done = f"{formatting.counted(len(said.event), 'event')} {DONE[said.action]}"
        return listed(request, said, done, () if said.action == "undo" else said.event)

    @pages.get("/events/{event_id}")
    def one(request: Request, event_id: str) -> HTMLResponse:
        try:
            return detail(request, state.store.event(event_id))
        except NoSuchEvent as error:
            return render(request, state, "missing.html", 404, what=f"{error}.")

    @pages.post("/events/{event_id}")
    def judge_one(
        request: Request, event_id: str, action: Annotated[Action, Form()], comment: Annotated[str, Form()] = ""
    ) -> HTMLResponse:
        _judge(state, request.state.who, clock(), [event_id], action, comment)
        return detail(request, state.store.event(event_id))

    def detail(request: Request, case: Case) -> HTMLResponse:
        past = state.store.audit(case.id, limit=20)
        near, alike = nearest(state.snapshot, case.event), state.store.alike(case, 6)
        about: dict[str, Any] = {"case": case, "past": past, "near": near, "alike": alike}
        return render(request, state, "event.html", silenced=silenced([case]), **about)

    @pages.get("/pictures/events/{event_id}")
    def picture(event_id: str) -> dict[str, Any]:
        try:
            return event_picture(state.snapshot, state.store.event(event_id), state.past)
        except NoSuchEvent as error:
            raise HTTPException(404, str(error)) from error

    return pages


def _judge(state: ServiceState, who: str, now_s: float, ids: list[str], action: Action, comment: str) -> None:
    """Write it down, for all or for none; what cannot be is told to the page."""
    try:
        if action == "undo":
            for event_id in ids:
                state.store.undo(event_id, who=who, now_s=now_s)
        else:
            state.store.vet(ids, action, who=who, comment=comment.strip(), now_s=now_s)
    except NoSuchEvent as error:
        raise HTTPException(404, str(error)) from error
    except SettingsError as error:
        raise HTTPException(422, str(error)) from error
