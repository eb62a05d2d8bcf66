"""The web application: the published state -> an app with the API, the pages, the metrics and access control."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files

from anyio import to_thread
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from clustertwin import __version__
from clustertwin.core.errors import InputError, OutputError, Overloaded
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.outgoing import service_metrics
from clustertwin.service.web import api, pages
from clustertwin.service.web.access import Guard
from clustertwin.service.web.binding import Binding
from clustertwin.service.web.head_requests import HeadAsGet
from clustertwin.service.web.unavailable import unavailable

#: The health check fails if the loop has published no snapshot for this long.
ALIVE_S = 60.0
#: Requests that are answered at the same time; the others wait. Python runs one thread at a time, so each of them makes
#: the loop wait. With the usual forty, readers of large answers delayed the data of all nodes by seconds.
PAGE_THREADS = 4


@asynccontextmanager
async def _few_threads(app: FastAPI) -> AsyncIterator[None]:
    to_thread.current_default_thread_limiter().total_tokens = PAGE_THREADS
    yield


def create_app(state: ServiceState, binding: Binding = Binding()) -> FastAPI:
    """Build the app. It starts nothing: the loop publishes into `state` from its own thread."""
    app = FastAPI(
        title="clustertwin",
        version=__version__,
        description="The threads of a cluster, their anomaly scores, the events and their verdicts.",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # its scripts come from another site
        redoc_url=None,
        lifespan=_few_threads,
    )
    groups = [*api.mount(app, state), *pages.mount(app, state)]

    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> Response:  # without a thread: those of the pages may all be busy
        if state.age_s < ALIVE_S:
            return PlainTextResponse("ok\n")
        return PlainTextResponse(f"the loop is stuck: no snapshot for {state.age_s:.0f} s\n", 503)

    @app.get("/metrics", include_in_schema=False)
    def own_metrics(request: Request, threads: bool = False) -> Response:
        members = state.members.shown_to(request.state.who, request.state.role) if state.members else None
        text = service_metrics.render(state, threads=threads, members=members)
        return Response(text, media_type=service_metrics.CONTENT_TYPE)

    @app.exception_handler(OutputError)
    def cannot_write(request: Request, error: OutputError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 507)

    @app.exception_handler(InputError)
    def cannot_read(request: Request, error: InputError) -> Response:
        """A file of the service is damaged. What does not need it still answers."""
        return unavailable(str(error), request.headers.get("accept", ""))

    @app.exception_handler(Overloaded)
    def too_slow(request: Request, error: Overloaded) -> Response:
        return unavailable(str(error), request.headers.get("accept", ""))

    @app.get("/favicon.ico", include_in_schema=False)
    def icon() -> Response:
        mark = files("clustertwin.service.web.pages").joinpath("static/mark.svg").read_bytes()
        return Response(mark, media_type="image/svg+xml")

    app.add_middleware(HeadAsGet)  # inside the guard, which needs the real method
    app.add_middleware(Guard, state=state, binding=binding, groups=groups)
    return app
