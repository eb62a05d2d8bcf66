"""Errors for people: an exception -> a page in our layout for a browser, else JSON with one sentence as its detail.

Clients of the API keep FastAPI's own answers.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from fastapi.exception_handlers import http_exception_handler, request_validation_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from clustertwin.core.errors import TwinError
from clustertwin.service.web.api import PREFIX
from clustertwin.service.web.contract import Page
from clustertwin.service.web.pages.rendering import render
from clustertwin.service.web.unavailable import unavailable

if TYPE_CHECKING:
    from fastapi import FastAPI

    from clustertwin.service.live.snapshot import ServiceState

_ERROR = Page(title="Error", paths=(), router=lambda state: APIRouter())
MOST_SENTENCES = 3


def mount(app: FastAPI, state: ServiceState) -> None:
    """Add the handlers to the app."""

    def page(request: Request, code: int, text: str) -> Response:
        title = HTTPStatus(code).phrase.capitalize()
        try:
            return render(request, state, _ERROR, "error.html", code, title=title, text=text)
        except TwinError as error:  # the database: this is the handler of errors, and nothing handles its own
            return unavailable(str(error), request.headers.get("accept", ""))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        if not _wants_page(request):
            return await http_exception_handler(request, error)
        detail = str(error.detail)
        if detail == HTTPStatus(error.status_code).phrase:  # the router's own answer names nothing
            detail = f"There is no page {request.url.path}." if error.status_code == 404 else f"{detail}."
        response = await run_in_threadpool(page, request, error.status_code, detail)  # a page reads the database
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        if _is_api(request):
            try:
                return await request_validation_exception_handler(request, error)
            except ValueError:  # it repeats the input, and NaN or half of a surrogate pair is not JSON
                problems = [{key: problem[key] for key in ("type", "loc", "msg")} for problem in error.errors()]
                return Response(json.dumps({"detail": problems}), 422, media_type="application/json")
        text = sentences(error)
        if not _wants_page(request):
            return JSONResponse({"detail": text}, 422)
        return await run_in_threadpool(page, request, 422, text)


def sentences(error: RequestValidationError) -> str:
    """One sentence for each invalid field."""
    found = [f"“{problem['loc'][-1]}” is not valid: {problem['msg']}." for problem in error.errors()]
    more = len(found) - MOST_SENTENCES
    return " ".join(found[:MOST_SENTENCES]) + (f" And {more} more." if more > 0 else "")


def _is_api(request: Request) -> bool:
    return request.url.path == PREFIX or request.url.path.startswith(f"{PREFIX}/")


def _wants_page(request: Request) -> bool:
    """Whether a browser will show the answer as a page. HTMX shows the detail of an error as a message instead."""
    by_htmx = bool(request.headers.get("HX-Request"))
    return not _is_api(request) and not by_htmx and "text/html" in request.headers.get("accept", "")
