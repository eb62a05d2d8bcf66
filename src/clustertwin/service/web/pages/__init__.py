"""The pages for a browser: the published state -> HTML that follows the cluster live, and forms for decisions.

A page is one module with a `PAGE`, its template and one row of `PAGES`. The other modules of this folder prepare what
the pages draw. Scripts and styles are our own or vendored (static/vendor/manifest.json). Nothing is loaded from another
site, and no script or style is inline.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi.staticfiles import StaticFiles
from starlette.responses import Response

if TYPE_CHECKING:
    from fastapi import FastAPI

    from clustertwin.service.live.snapshot import ServiceState
    from clustertwin.service.web.contract import Page

#: Every page: the modules of this folder that define `PAGE`. The navigation bar has the same order.
PAGES = (
    "cluster",
    "clusters",
    "events",
    "jobs",
    "try_change",
    "embedding",
    "models",
    "actions",
    "quiet_periods",
    "audit",
    "node",
    "login",
)

STATIC = Path(__file__).parent / "static"


class Assets(StaticFiles):
    """Browsers may cache assets for ever: after an upgrade they have another address."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


@cache
def pages() -> tuple[Page, ...]:
    return tuple(import_module(f"{__name__}.{name}").PAGE for name in PAGES)


def navigation() -> tuple[Page, ...]:
    """The pages of the navigation bar."""
    return tuple(page for page in pages() if page.key)


def mount(app: FastAPI, state: ServiceState) -> tuple[Page, ...]:
    """Add every page, the error pages and the files below /static to the app, and return the pages."""
    from clustertwin.service.web.pages import error_pages
    from clustertwin.service.web.pages.rendering import static

    app.mount(static(), Assets(directory=STATIC), name="static")
    for page in pages():
        app.include_router(page.router(state), include_in_schema=False)
    error_pages.mount(app, state)
    return pages()
