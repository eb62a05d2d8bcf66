"""The JSON API under /api/v1, one module for each subject. An unknown value is null, never zero."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI

    from clustertwin.service.live.snapshot import ServiceState
    from clustertwin.service.web.contract import RouteGroup

PREFIX = "/api/v1"
#: Every part of the API: the modules of this folder that define `ROUTES`.
PARTS = ("actions", "cluster", "clusters", "events", "models", "quiet_periods", "remote_write", "stream", "summary")


def parts() -> list[RouteGroup]:
    """The parts, with the paths that clients use."""
    groups: list[RouteGroup] = [import_module(f"{__name__}.{name}").ROUTES for name in PARTS]
    return [replace(group, paths=tuple(f"{PREFIX}{path}" for path in group.paths)) for group in groups]


def mount(app: FastAPI, state: ServiceState) -> list[RouteGroup]:
    """Add every part to the app, and return the parts."""
    groups = parts()
    for group in groups:
        app.include_router(group.router(state), prefix=PREFIX)
    return groups
