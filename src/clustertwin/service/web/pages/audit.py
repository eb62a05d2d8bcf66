"""The audit: who did what and when, newest first, page by page; nobody can change a line of it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.web.pages.rendering import render

ROWS = 100


def router(state: ServiceState) -> APIRouter:
    pages = APIRouter(include_in_schema=False)

    @pages.get("/audit")
    def page(request: Request, subject: str = "", before_id: Annotated[int, Query(ge=0, le=2**53)] = 0) -> HTMLResponse:
        entries = state.store.audit(subject.strip(), before_id, ROWS + 1)
        older = entries[ROWS - 1].id if len(entries) > ROWS else 0
        return render(request, state, "audit.html", entries=entries[:ROWS], subject=subject.strip(), older=older)

    return pages
