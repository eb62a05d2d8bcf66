"""The audit log: who did what and when, newest first. Entries cannot be changed; old ones are deleted."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.web.contract import Page
from clustertwin.service.web.pages.rendering import render

ROWS = 100


def router(state: ServiceState) -> APIRouter:
    routes = APIRouter()

    @routes.get("/audit")
    def show(request: Request, subject: str = "", before_id: Annotated[int, Query(ge=0, le=2**53)] = 0) -> HTMLResponse:
        subject = subject.strip()
        entries = state.store.audit(subject, before_id, ROWS + 1)
        older = entries[ROWS - 1].id if len(entries) > ROWS else 0
        return render(request, state, PAGE, "audit.html", entries=entries[:ROWS], subject=subject, older=older)

    return routes


PAGE = Page(title="Audit", key="a", paths=("/audit",), router=router)
