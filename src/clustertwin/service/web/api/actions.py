"""Evidence, actions and savings. Reading needs the role vet, and to approve or dismiss needs the role admin."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from pydantic import BaseModel, Field

from clustertwin.core.errors import SettingsError
from clustertwin.service.act.action_journal import ActionRecord, ApprovalRefused, Journal
from clustertwin.service.act.evidence_store import EvidenceStore
from clustertwin.service.act.execution import Executor
from clustertwin.service.act.savings import rows_by, week
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.web.contract import RouteGroup


class ApprovalRequest(BaseModel):
    code: str = Field(min_length=1, max_length=128)


def router(state: ServiceState, clock: Callable[[], float] = time.time) -> APIRouter:
    api = APIRouter(tags=["actions"])

    def journal() -> Journal:
        return Journal(state.store.database)

    def as_json(action: ActionRecord) -> dict[str, Any]:
        commands = Executor(state.home, journal()).dry_run(action)
        code = journal().code(action) if action.state == "proposed" else None
        return {**asdict(action), "commands": commands, "code": code}

    @api.get("/evidence/{event_id}", summary="The evidence of an event, newest first, with its finding and outcomes")
    def evidence(event_id: str) -> list[dict[str, Any]]:
        return [asdict(entry) for entry in EvidenceStore(state.store.database).of(event_id)]

    @api.get("/actions", summary="List actions, newest first")
    def list_actions(limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> list[dict[str, Any]]:
        return [asdict(action) for action in journal().actions(limit=limit)]

    @api.get("/actions/{action_id}", summary="Show an action, its commands, and the code that approves it")
    def show(action_id: str) -> dict[str, Any]:
        return as_json(_found(journal(), action_id))

    @api.post("/actions/{action_id}/approve", summary="Approve an action with its code; the service then does it")
    def approve(action_id: str, body: ApprovalRequest, request: Request) -> dict[str, Any]:
        _found(journal(), action_id)
        return asdict(approve_action(state, action_id, body.code, request.state.who, clock()))

    @api.post("/actions/{action_id}/dismiss", summary="Dismiss an action; its rule is suspended")
    def dismiss(action_id: str, request: Request) -> dict[str, Any]:
        _found(journal(), action_id)
        try:
            return asdict(journal().dismiss(action_id, request.state.who, clock()))
        except ApprovalRefused as error:
            raise HTTPException(409, str(error)) from error

    @api.get("/savings", summary="Promised and measured savings by week")
    def savings() -> list[dict[str, Any]]:
        return [asdict(row) for row in rows_by(journal(), week, state.store.is_settled)]

    return api


ROUTES = RouteGroup(paths=("/actions", "/evidence", "/savings"), router=router, read_role="vet", change_role="admin")


def approve_action(state: ServiceState, action_id: str, code: str, who: str, now_s: float) -> ActionRecord:
    """Approve an action. The hand's thread begins it within seconds; the grace of a cancellation can take longer."""
    if state.replayed:
        raise HTTPException(409, "a replay does not act; use the live service")
    try:
        return Journal(state.store.database).approve(action_id, code, who, now_s)
    except ApprovalRefused as error:
        raise HTTPException(409, str(error)) from error


def _found(journal: Journal, action_id: str) -> ActionRecord:
    try:
        return journal.action(action_id)
    except SettingsError as error:
        raise HTTPException(404, str(error)) from error
