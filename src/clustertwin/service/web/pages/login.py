"""The way in for a browser: a token, pasted once -> a cookie that no script can read and no other site can use."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.store.tokens import Tokens
from clustertwin.service.web.access import COOKIE
from clustertwin.service.web.pages.rendering import environment

MONTH_S = 30 * 86_400


def router(state: ServiceState) -> APIRouter:
    pages = APIRouter(include_in_schema=False)

    def form(to: str, wrong: str = "", code: int = 200) -> HTMLResponse:
        return HTMLResponse(environment().get_template("login.html").render(to=to, wrong=wrong), code)

    @pages.get("/login")
    def ask(to: str = "/") -> HTMLResponse:
        return form(to)

    @pages.post("/login")
    def enter(request: Request, token: Annotated[str, Form()] = "", to: Annotated[str, Form()] = "/") -> Response:
        if Tokens(state.store.database).holder(token.strip()) is None:
            return form(to, "Nobody has this token, or it was taken away.", 401)
        answer = RedirectResponse(_ours(to), 303)
        # Lax, so that a link in an alert still finds its reader logged in; the guard refuses changes from elsewhere.
        answer.set_cookie(
            COOKIE, token.strip(), MONTH_S, httponly=True, samesite="lax", secure=request.url.scheme == "https"
        )
        return answer

    @pages.post("/logout")
    def leave() -> Response:
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(COOKIE)
        return answer

    return pages


def _ours(path: str) -> str:
    """A path of this service, never another site: `//evil.example` is one to a browser."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() else "/"
