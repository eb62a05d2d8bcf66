"""The pages: a service's state -> what a person sees in a browser, live, and what they decide there.

Routes and templates are one file per page; `pictures.py` makes what the canvases draw. Scripts and styles are our own
or vendored (static/vendor/manifest.json); nothing is fetched from elsewhere, and nothing in a page is inline.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi.staticfiles import StaticFiles
from starlette.responses import Response

if TYPE_CHECKING:
    from fastapi import FastAPI

    from clustertwin.service.live.snapshot import ServiceState

STATIC = Path(__file__).parent / "static"


class Assets(StaticFiles):
    """Kept by browsers for good: after an upgrade they have another address."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        response = super().file_response(*args, **options)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


def mount(app: FastAPI, state: ServiceState) -> None:
    """Every page, and the files they need under /static."""
    from clustertwin.service.web.pages import audit, cluster, embedding, events, jobs, login, models, node, quiet
    from clustertwin.service.web.pages.rendering import static

    app.mount(static(), Assets(directory=STATIC), name="static")
    for page in (cluster, node, events, jobs, embedding, models, quiet, audit, login):
        app.include_router(page.router(state))
