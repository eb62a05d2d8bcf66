"""Events: the list, to judge many at once, and each with its whole reason; a person says what it was, or undoes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, HTTPException, Request
from fastapi.responses import HTMLResponse

from clustertwin.core.errors import SettingsError
from clustertwin.service.pages.embedding import nearest
from clustertwin.service.pages.event_picture import event_picture
from clustertwin.service.pages.rendering import render
from clustertwin.service.quiet import hushed
from clustertwin.service.state import ServiceState
from clustertwin.service.store import Case, Filter, NoSuchEvent

ROWS = 100
State = Literal["open", "closed", "all"]
Said = Literal["any", "none", "confirmed", "dismissed", "new-normal"]
Action = Literal["confirmed", "dismissed", "new-normal", "undo"]
DONE = {"confirmed": "confirmed", "dismissed": "dismissed", "new-normal": "taken as the new normal", "undo": "undone"}


def router(state: ServiceState, clock: Callable[[], float] = time.time) -> APIRouter:
    pages = APIRouter(include_in_schema=False)

    def listed(request: Request, which: dict[str, Any], page: int, done: str = "", ids: tuple[str, ...] = ()) -> Any:
        found = state.store.count(_filter(**which))
        last = max(-(-found // ROWS), 1)
        page = min(max(page, 1), last)
        cases = state.store.events(_filter(**which), ROWS, (page - 1) * ROWS)
        about = {"cases": cases, "found": found, "page": page, "last": last, "done": done, "ids": ids, **which}
        return render(request, state, "events.html", silenced=silenced(cases), **about)

    def silenced(cases: list[Case]) -> set[str]:
        silences = state.store.quiet.silences(state.snapshot.now_s or clock())
        return {case.id for case in cases if hushed(case.event, silences)}

    @pages.get("/events")
    def many(
        request: Request, status: State = "open", said: Said = "any", node: str = "", job: str = "", page: int = 1
    ) -> HTMLResponse:
        return listed(request, {"status": status, "said": said, "node": node, "job": job}, page)

    @pages.post("/events")
    def judge_many(
        request: Request,
        action: Annotated[Action, Form()],
        event: Annotated[list[str], Form()],
        comment: Annotated[str, Form()] = "",
        status: Annotated[State, Form()] = "open",
        said: Annotated[Said, Form()] = "any",
        node: Annotated[str, Form()] = "",
        job: Annotated[str, Form()] = "",
        page: Annotated[int, Form()] = 1,
    ) -> HTMLResponse:
        _judge(state, request.state.who, clock(), event, action, comment)
        done = f"{len(event)} event{'s' * (len(event) != 1)} {DONE[action]}"
        which = {"status": status, "said": said, "node": node, "job": job}
        return listed(request, which, page, done, () if action == "undo" else tuple(event))

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


def _filter(status: State, said: Said, node: str, job: str) -> Filter:
    verdict = {"any": None, "none": ""}.get(said, said)
    return Filter(open={"open": True, "closed": False, "all": None}[status], verdict=verdict, node=node, job=job)


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
