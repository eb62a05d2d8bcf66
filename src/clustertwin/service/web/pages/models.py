"""Models: the model in service, the stored versions and nightly learning. An admin can promote and roll back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse

from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.web.contract import Page
from clustertwin.service.web.model_changes import (
    LONGEST_REASON,
    LONGEST_VERSION,
    ChampionAction,
    LearningAction,
    change_champion,
    change_learning,
    stored_models,
)
from clustertwin.service.web.pages.rendering import render

ACTIONS = (*get_args(ChampionAction), *get_args(LearningAction))


def router(state: ServiceState, clock: Callable[[], float] = time.time) -> APIRouter:
    routes = APIRouter()

    @routes.get("/models")
    def show(request: Request) -> HTMLResponse:
        return render(request, state, PAGE, "models.html", **_values(state))

    @routes.post("/models")
    def act(
        request: Request,
        action: Annotated[ChampionAction | LearningAction, Form()],
        version: Annotated[str, Form(max_length=LONGEST_VERSION)] = "",
        reason: Annotated[str, Form(max_length=LONGEST_REASON)] = "",
    ) -> HTMLResponse:
        if action == "promote" or action == "rollback":
            change_champion(state, action, version, reason.strip(), request.state.who, clock())
        else:
            change_learning(state, action, reason.strip(), request.state.who, clock())
        return render(request, state, PAGE, "models.html", **_values(state))

    return routes


PAGE = Page(title="Models", key="l", paths=("/models",), router=router, change_role="admin")


def _values(state: ServiceState) -> dict[str, Any]:
    """What the template shows."""
    stored = stored_models(state)
    return {
        "champion": stored.champion,
        "learning": stored.learning,
        "versions": stored.versions[::-1],
        "errors": stored.problems,
        "actions": [entry for entry in state.store.audit(limit=200) if entry.action in ACTIONS][:12],
        "replayed": state.replayed,
    }
