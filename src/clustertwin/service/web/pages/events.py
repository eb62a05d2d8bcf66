"""Events: the list, where many get a verdict at once, and one event with its explanation and its verdicts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, HTTPException, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, model_validator

from clustertwin.core import formatting
from clustertwin.core.errors import SettingsError
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.outgoing.score_meaning import score_meaning, threshold_of
from clustertwin.service.store.event_store import LONGEST_COMMENT, Case, Filter, NoSuchEvent
from clustertwin.service.store.quiet_periods import is_silenced
from clustertwin.service.web.contract import MAX_BODY_BYTES, Page
from clustertwin.service.web.pages.embedding import nearest
from clustertwin.service.web.pages.event_evidence import event_evidence
from clustertwin.service.web.pages.event_picture import event_picture
from clustertwin.service.web.pages.rendering import render
from clustertwin.service.web.write_budget import WriteBudget

ROWS = 100
Status = Literal["open", "closed", "all"]
VerdictFilter = Literal["any", "none", "confirmed", "dismissed", "new-normal"]
Action = Literal["confirmed", "dismissed", "new-normal", "undo"]
DONE = {"confirmed": "confirmed", "dismissed": "dismissed", "new-normal": "marked as new normal", "undo": "undone"}

NOTHING_MARKED = "No event is marked. Mark at least one event, then choose a verdict"


class ListQuery(BaseModel):
    """Which events the list shows."""

    status: Status = "open"
    verdict: VerdictFilter = "any"
    node: str = ""
    job: str = ""
    page: int = 1

    @model_validator(mode="before")
    @classmethod
    def with_old_name(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Links of earlier releases call the verdict `said`."""
        return {"verdict": values["said"], **values} if "said" in values else values

    @property
    def filter(self) -> Filter:
        verdict = {"any": None, "none": ""}.get(self.verdict, self.verdict)
        is_open = {"open": True, "closed": False, "all": None}[self.status]
        return Filter(open=is_open, verdict=verdict, node=self.node, job=self.job, unsettled=self.hides_settled)

    @property
    def hides_settled(self) -> bool:
        """A dismissed event is not open for a reader, unless the reader asks for that verdict."""
        return self.status == "open" and self.verdict == "any"


class VerdictForm(ListQuery):
    """A verdict for the marked events, and the list that is shown again."""

    action: Action
    event: list[str] = []
    comment: str = ""


def router(state: ServiceState, clock: Callable[[], float] = time.time) -> APIRouter:
    routes = APIRouter()
    budget = WriteBudget()

    def list_page(
        request: Request, query: ListQuery, done: str = "", ids: Sequence[str] = (), code: int = 200
    ) -> HTMLResponse:
        matches = state.store.count(query.filter)
        last = max(-(-matches // ROWS), 1)
        page = min(max(query.page, 1), last)
        cases = state.store.events(query.filter, ROWS, (page - 1) * ROWS)
        values = {**query.model_dump(), "page": page, "last": last, "matches": matches, "done": done, "ids": ids}
        return render(request, state, PAGE, "events.html", code, cases=cases, silenced=silenced(cases), **values)

    def silenced(cases: list[Case]) -> set[str]:
        silences = state.store.quiet_periods.silences(state.snapshot.now_s or clock())
        return {case.id for case in cases if is_silenced(case.event, silences)}

    @routes.get("/events")
    def show_list(request: Request, query: Annotated[ListQuery, Query()]) -> HTMLResponse:
        return list_page(request, query)

    @routes.post("/events")
    def vet_many(request: Request, form: Annotated[VerdictForm, Form()]) -> HTMLResponse:
        if not form.event:
            return list_page(request, form, NOTHING_MARKED, code=422)
        ids = list(dict.fromkeys(form.event))
        vet(request.state.who, ids, form.action, form.comment, own=True)
        done = f"{formatting.counted(len(ids), 'event')} {DONE[form.action]}"
        return list_page(request, form, done, () if form.action == "undo" else ids)

    @routes.get("/events/{event_id}")
    def show_event(request: Request, event_id: str) -> HTMLResponse:
        try:
            return event_page(request, state.store.event(event_id))
        except NoSuchEvent:
            return render(
                request, state, PAGE, "error.html", 404, title="Not found", text=f"There is no event {event_id}."
            )

    @routes.post("/events/{event_id}")
    def vet_one(
        request: Request, event_id: str, action: Annotated[Action, Form()], comment: Annotated[str, Form()] = ""
    ) -> HTMLResponse:
        vet(request.state.who, [event_id], action, comment)
        return event_page(request, state.store.event(event_id))

    def vet(who: str, ids: list[str], action: Action, comment: str, own: bool = False) -> None:
        """Store a verdict for all of the events or for none; or undo the last verdict of each."""
        budget.spend(who, len(ids), "x" * LONGEST_COMMENT if action == "undo" else comment)
        try:
            if action == "undo":
                state.store.undo_all(ids, who=who, now_s=clock(), own=own)
            else:
                state.store.vet(ids, action, who=who, comment=comment.strip(), now_s=clock())
        except NoSuchEvent as error:
            raise HTTPException(404, str(error)) from error
        except SettingsError as error:
            raise HTTPException(422, str(error)) from error

    def event_page(request: Request, case: Case) -> HTMLResponse:
        values: dict[str, Any] = {
            "case": case,
            "meaning": score_meaning(case.event, threshold_of(case.event, state.snapshot)),
            "verdicts": state.store.audit(case.id, limit=20),
            "near": nearest(state.snapshot, case.event),
            "alike": state.store.alike(case, 6),
            "hand": event_evidence(state, case, request.state.role),
        }
        return render(request, state, PAGE, "event.html", silenced=silenced([case]), **values)

    @routes.get("/pictures/events/{event_id}")
    def picture(event_id: str) -> dict[str, Any]:
        try:
            return event_picture(state.snapshot, state.store.event(event_id), state.past)
        except NoSuchEvent as error:
            raise HTTPException(404, str(error)) from error

    return routes


PAGE = Page(title="Events", key="e", paths=("/events",), router=router, body_bytes=MAX_BODY_BYTES)
