"""Log in with a token: the token -> a session, in a cookie that scripts cannot read and other sites cannot use."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.store.tokens import SESSION_S, Tokens
from clustertwin.service.web.access import COOKIE
from clustertwin.service.web.contract import Page
from clustertwin.service.web.pages.rendering import environment


def router(state: ServiceState) -> APIRouter:
    routes = APIRouter()

    def form(to: str, error: str = "", code: int = 200) -> HTMLResponse:
        template = environment().get_template("login.html")
        return HTMLResponse(template.render(title=PAGE.title, to=to, error=error), code)

    @routes.get("/login")
    def show(to: str = "/") -> HTMLResponse:
        return form(to)

    @routes.post("/login")
    def log_in(request: Request, token: Annotated[str, Form()] = "", to: Annotated[str, Form()] = "/") -> Response:
        session = Tokens(state.store.database).start_session(token.strip())
        if session is None:
            return form(to, "This token does not exist, has expired, or was removed.", 401)
        answer = RedirectResponse(_local_path(to), 303)
        # Lax: a link in an alert opens a page without another login. The guard refuses changes from other sites.
        answer.set_cookie(
            COOKIE, session, int(SESSION_S), httponly=True, samesite="lax", secure=request.url.scheme == "https"
        )
        return answer

    @routes.post("/logout")
    def log_out(request: Request) -> Response:
        Tokens(state.store.database).end_session(request.state.session)
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(COOKIE)
        return answer

    return routes


#: A token and a path. Nobody has been checked before this form is read.
LOGIN_BYTES = 1 << 13

PAGE = Page(title="Log in", paths=("/login", "/logout"), router=router, public=True, body_bytes=LOGIN_BYTES)


def _local_path(path: str) -> str:
    """A path of this service, never another site: a browser reads `//evil.example` as one."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() else "/"
