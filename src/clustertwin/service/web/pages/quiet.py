"""Quiet times: maintenance windows and silences that hold or are to come; add one, let one end, and who did so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, HTTPException, Request
from fastapi.responses import HTMLResponse

from clustertwin.core.durations import parse_duration
from clustertwin.core.errors import SettingsError
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.store.quiet_times import Maintenance, Silence
from clustertwin.service.web.pages.rendering import render

Kind = Literal["maintenance", "silence"]
ACTIONS = ("maintenance", "end maintenance", "silence", "end silence")
#: A silence's effect is counted on the newest open events; counting ten thousand would take longer than it tells.
MOST_EVENTS = 2000
Time = Annotated[float | None, Form(ge=0, le=2**53, allow_inf_nan=False)]
Text = Annotated[str, Form(max_length=1000)]


def router(state: ServiceState, clock: Callable[[], float] = time.time) -> APIRouter:
    pages = APIRouter(include_in_schema=False)

    def now_s() -> float:
        return state.snapshot.now_s or clock()

    def shown(request: Request, form: dict[str, str] | None = None) -> HTMLResponse:
        return render(request, state, "quiet.html", form=form or {}, **_about(state, now_s()))

    @pages.get("/quiet")
    def page(request: Request, nodes: str = "", node: str = "", job: str = "", owner: str = "") -> HTMLResponse:
        return shown(request, {"nodes": nodes, "node": node, "job": job, "owner": owner})

    @pages.post("/quiet/maintenance")
    def maintain(request: Request, nodes: Text, lasts: Text, begins_s: Time = None, reason: Text = "") -> HTMLResponse:
        start_s = now_s() if begins_s is None else begins_s
        names = tuple(nodes.replace(",", " ").split())

        def add() -> None:
            window = Maintenance(names, start_s, start_s + parse_duration(lasts), reason.strip(), request.state.who)
            state.store.quiet.add_maintenance(window, now_s())

        _try(add)
        return shown(request)

    @pages.post("/quiet/silence")
    def hush(
        request: Request, lasts: Text, node: Text = "", job: Text = "", owner: Text = "", view: Text = "",
        reason: Text = "",
    ) -> HTMLResponse:  # fmt: skip
        def add() -> None:
            until_s = now_s() + parse_duration(lasts)
            silence = Silence(
                until_s, node.strip(), job.strip(), owner.strip(), view, reason.strip(), request.state.who
            )
            state.store.quiet.add_silence(silence, now_s())

        _try(add)
        return shown(request)

    @pages.post("/quiet/{kind}/{number}/end")
    def end(request: Request, kind: Kind, number: int) -> HTMLResponse:
        quiet = state.store.quiet
        ended = quiet.end_maintenance if kind == "maintenance" else quiet.end_silence
        if not 0 < number < 2**53 or not ended(number, request.state.who, now_s()):
            raise HTTPException(404, f"no {kind} {number} that has not ended")
        return shown(request)

    return pages


def _try(add: Callable[[], None]) -> None:
    try:
        add()
    except SettingsError as error:
        raise HTTPException(422, str(error)) from error


def _about(state: ServiceState, now_s: float) -> dict[str, Any]:
    """Each with what it covers now, so that a mistyped pattern is seen at once."""
    quiet, snapshot = state.store.quiet, state.snapshot
    names = [node.node for node in snapshot.nodes]
    windows = [(window, sum(map(window.holds, names))) for window in quiet.maintenance(now_s)]
    newest = snapshot.events[:MOST_EVENTS]
    silences = [(silence, sum(map(silence.holds, newest))) for silence in quiet.silences(now_s)]
    done = [entry for entry in state.store.audit(limit=500) if entry.action in ACTIONS][:12]
    views = snapshot.model.views if snapshot.model else ()
    return {"windows": windows, "silences": silences, "done": done, "now_s": now_s, "views": views}
