"""Maintenance windows and silences: list those that have not ended, add one, end one, and show who did so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, HTTPException, Request
from fastapi.responses import HTMLResponse

from clustertwin.core.durations import parse_duration
from clustertwin.core.errors import SettingsError
from clustertwin.core.foreign_files import LATEST_S
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.store.quiet_periods import MaintenanceWindow, Silence
from clustertwin.service.web.contract import Page
from clustertwin.service.web.pages.rendering import render
from clustertwin.service.web.unsettled_events import open_events
from clustertwin.service.web.write_budget import WriteBudget

Kind = Literal["maintenance", "silence"]
ACTIONS = ("maintenance", "end maintenance", "silence", "end silence")
#: The page shows how many of the newest open events a silence covers. To count ten thousand would take too long.
MOST_EVENTS = 2000
Time = Annotated[float | None, Form(ge=0, le=LATEST_S, allow_inf_nan=False)]
Text = Annotated[str, Form(max_length=1000)]


def router(state: ServiceState, clock: Callable[[], float] = time.time) -> APIRouter:
    routes = APIRouter()
    budget = WriteBudget()

    def now_s() -> float:
        return state.snapshot.now_s or clock()

    def page(request: Request, form: dict[str, str] | None = None) -> HTMLResponse:
        return render(request, state, PAGE, "quiet_periods.html", form=form or {}, **_values(state, now_s()))

    @routes.get("/quiet")
    def show(request: Request, nodes: str = "", node: str = "", job: str = "", owner: str = "") -> HTMLResponse:
        return page(request, {"nodes": nodes, "node": node, "job": job, "owner": owner})

    @routes.post("/quiet/maintenance")
    def add_maintenance(
        request: Request, nodes: Text, lasts: Text, begins_s: Time = None, reason: Text = ""
    ) -> HTMLResponse:
        budget.spend(request.state.who, 1, nodes + reason)
        start_s = now_s() if begins_s is None else begins_s
        names = tuple(nodes.replace(",", " ").split())

        def add() -> None:
            end_s = start_s + parse_duration(lasts)
            window = MaintenanceWindow(names, start_s, end_s, reason.strip(), request.state.who)
            state.store.quiet_periods.add_maintenance(window, now_s())

        _try(add)
        return page(request)

    @routes.post("/quiet/silence")
    def add_silence(
        request: Request, lasts: Text, node: Text = "", job: Text = "", owner: Text = "", view: Text = "",
        reason: Text = "",
    ) -> HTMLResponse:  # fmt: skip
        budget.spend(request.state.who, 1, node + job + owner + view + reason)

        def add() -> None:
            until_s = now_s() + parse_duration(lasts)
            silence = Silence(
                until_s, node.strip(), job.strip(), owner.strip(), view, reason.strip(), request.state.who
            )
            state.store.quiet_periods.add_silence(silence, now_s())

        _try(add)
        return page(request)

    @routes.post("/quiet/{kind}/{number}/end")
    def end(request: Request, kind: Kind, number: int) -> HTMLResponse:
        periods = state.store.quiet_periods
        end_now = periods.end_maintenance if kind == "maintenance" else periods.end_silence
        if not 0 < number < 2**53 or not end_now(number, request.state.who, now_s()):
            name = "maintenance window" if kind == "maintenance" else "silence"
            raise HTTPException(404, f"there is no {name} {number}, or it has ended")
        return page(request)

    return routes


PAGE = Page(title="Maintenance and silences", key="q", paths=("/quiet",), router=router)


def _try(add: Callable[[], None]) -> None:
    try:
        add()
    except SettingsError as error:
        raise HTTPException(422, str(error)) from error


def _values(state: ServiceState, now_s: float) -> dict[str, Any]:
    """Each window and silence with what it covers now, so that a mistyped pattern is noticed at once."""
    periods, snapshot = state.store.quiet_periods, state.snapshot
    names = [node.node for node in snapshot.nodes]
    windows = [(window, sum(map(window.covers, names))) for window in periods.maintenance(now_s)]
    newest = open_events(state).events[:MOST_EVENTS]
    silences = [(silence, sum(map(silence.covers, newest))) for silence in periods.silences(now_s)]
    actions = [entry for entry in state.store.audit(limit=500) if entry.action in ACTIONS][:12]
    views = snapshot.model.views if snapshot.model else ()
    return {"windows": windows, "silences": silences, "actions": actions, "now_s": now_s, "views": views}
