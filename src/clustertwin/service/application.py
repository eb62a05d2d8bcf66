"""The HTTP face of the service: a state -> an app with API, pages, metrics and the guard around them all."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.resources import files

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from clustertwin import __version__
from clustertwin.core.errors import OutputError
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.outgoing import service_metrics
from clustertwin.service.web import api, pages
from clustertwin.service.web.access import Binding, Guard

#: A loop that has not turned for so long is not alive.
ALIVE_S = 60.0


def create_app(
    state: ServiceState, binding: Binding = Binding(), clock: Callable[[], float] = time.monotonic
) -> FastAPI:
    """Nothing is started here: the loop publishes into `state` from wherever it runs."""
    app = FastAPI(
        title="clustertwin",
        version=__version__,
        description="What a cluster's threads do, what is strange about it, and what people said of it.",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # its scripts come from elsewhere
        redoc_url=None,
    )
    api.mount(app, state)
    seen = [0, clock()]

    @app.get("/healthz", include_in_schema=False)
    def healthz() -> Response:
        if state.snapshot.number != seen[0]:
            seen[:] = [state.snapshot.number, clock()]
        alive = clock() - seen[1] < ALIVE_S
        return PlainTextResponse("ok\n" if alive else "the loop does not turn\n", 200 if alive else 503)

    @app.get("/metrics", include_in_schema=False)
    def own_metrics(threads: bool = False) -> Response:
        return Response(service_metrics.render(state, threads=threads), media_type=service_metrics.CONTENT_TYPE)

    @app.exception_handler(OutputError)
    def full(request: Request, error: OutputError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, 507)

    @app.get("/favicon.ico", include_in_schema=False)
    def icon() -> Response:
        mark = files("clustertwin.service.web.pages").joinpath("static/mark.svg").read_bytes()
        return Response(mark, media_type="image/svg+xml")

    pages.mount(app, state)
    app.add_middleware(Guard, state=state, binding=binding)
    return app
