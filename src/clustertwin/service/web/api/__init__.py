"""The JSON API under /api/v1: one file per subject; what is unknown is null, never a zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI

    from clustertwin.service.live.snapshot import ServiceState


def mount(app: FastAPI, state: ServiceState) -> None:
    from clustertwin.service.web.api import cluster, events, models, quiet, stream

    for subject in (cluster, events, models, quiet, stream):
        app.include_router(subject.router(state), prefix="/api/v1")
