"""Actions: proposals that wait for a decision, what was done, savings, and suspended rules."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Form, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from clustertwin.core.errors import SettingsError
from clustertwin.service.act.action_journal import ApprovalRefused, Journal
from clustertwin.service.act.execution import Executor
from clustertwin.service.act.policy import UNDO
from clustertwin.service.act.savings import rows_by, week
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.web.api.actions import approve_action
from clustertwin.service.web.contract import Page
from clustertwin.service.web.pages.rendering import render

ROWS = 100
Code = Annotated[str, Form(max_length=128)]


def router(state: ServiceState, clock: Callable[[], float] = time.time) -> APIRouter:
    routes = APIRouter()

    @routes.get("/actions")
    def show(request: Request) -> HTMLResponse:
        journal = Journal(state.store.database)
        return render(
            request,
            state,
            PAGE,
            "actions.html",
            actions=shown_actions(state, journal.actions(limit=ROWS)),
            suspended=journal.suspended_rules(),
            weeks=rows_by(journal, week, state.store.is_settled),
            causes=rows_by(journal, lambda action: action.plan.cause, state.store.is_settled),
        )

    @routes.post("/actions/{action_id}/approve")
    def approve(request: Request, action_id: str, code: Code) -> Response:
        try:
            action = approve_action(state, action_id, code, request.state.who, clock())
        except SettingsError as error:
            raise HTTPException(404, str(error)) from error
        return RedirectResponse(f"/events/{action.event}#hand", 303)

    @routes.post("/actions/{action_id}/dismiss")
    def dismiss(request: Request, action_id: str) -> Response:
        journal = Journal(state.store.database)
        try:
            action = journal.dismiss(action_id, request.state.who, clock())
        except ApprovalRefused as error:
            raise HTTPException(409, str(error)) from error
        except SettingsError as error:
            raise HTTPException(404, str(error)) from error
        return RedirectResponse(f"/events/{action.event}#hand", 303)

    return routes


def shown_actions(state: ServiceState, actions: list[Any]) -> list[dict[str, Any]]:
    """Actions with their commands, with what undoes them, and with the code of those that wait for a decision."""
    journal = Journal(state.store.database)
    executor = Executor(state.home, journal)
    return [
        {
            "action": action,
            "commands": executor.dry_run(action),
            "undo": UNDO[action.verb],
            "code": journal.code(action) if action.state == "proposed" else "",
        }
        for action in actions
    ]


PAGE = Page(title="Actions", key="x", paths=("/actions",), router=router, read_role="vet", change_role="admin")
