"""Models: the model in service, the stored versions and nightly learning. An admin can promote and roll back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, HTTPException, Request
from fastapi.responses import HTMLResponse

from clustertwin.core.errors import TwinError
from clustertwin.service.live.night_runner import tell_registry
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.web.contract import Page
from clustertwin.service.web.pages.rendering import render
from clustertwin.telemetry.learning.champions import learning_state as learning
from clustertwin.telemetry.learning.champions.fencing_lock import next_fence

Action = Literal["rollback", "promote", "freeze", "resume"]
ACTIONS = ("promote", "rollback", "freeze", "resume")


def router(state: ServiceState, clock: Callable[[], float] = time.time) -> APIRouter:
    routes = APIRouter()

    @routes.get("/models")
    def show(request: Request) -> HTMLResponse:
        return render(request, state, PAGE, "models.html", **_values(state))

    @routes.post("/models")
    def act(
        request: Request,
        action: Annotated[Action, Form()],
        version: Annotated[str, Form()] = "",
        reason: Annotated[str, Form()] = "",
    ) -> HTMLResponse:
        who, now_s = getattr(request.state, "who", ""), clock()
        try:
            subject = _do(state, action, version, reason.strip(), now_s)
        except TwinError as error:
            raise HTTPException(409, str(error)) from error
        state.store.append_audit(who, action, subject, now_s, {"reason": reason.strip()})
        if action in ("promote", "rollback"):
            tell_registry(state.home)
        return render(request, state, PAGE, "models.html", **_values(state))

    return routes


PAGE = Page(title="Models", key="l", paths=("/models",), router=router, change_role="admin")


def _do(state: ServiceState, action: Action, version: str, reason: str, now_s: float) -> str:
    """Carry out the action, and return what it was done to."""
    home = state.teachable()
    from clustertwin.telemetry.learning.champions import champion_store

    if action == "rollback":
        return champion_store.rollback(home, next_fence(home), now_s).version
    if action == "promote":
        return champion_store.promote(home, version, next_fence(home), reason or "promoted by hand", now_s).version
    if action == "freeze":
        learning.freeze(home, reason)
    else:
        learning.resume(home)
    return "learning"


def _values(state: ServiceState) -> dict[str, Any]:
    """What the template shows. A file that cannot be read becomes an error on the page; the rest is still shown."""
    from clustertwin.telemetry.learning.champions import champion_store, version_store

    errors = []
    champion, learning_state = None, learning.LearningState()
    try:
        champion = champion_store.read_champion(state.home)
    except TwinError as error:
        errors.append(str(error))
    try:
        learning_state = learning.read_state(state.home)
    except TwinError as error:
        errors.append(str(error))
    actions = [entry for entry in state.store.audit(limit=200) if entry.action in ACTIONS][:12]
    return {
        "champion": champion,
        "learning": learning_state,
        "versions": version_store.versions(state.home)[::-1],
        "errors": errors,
        "actions": actions,
        "replayed": state.replayed,
    }
