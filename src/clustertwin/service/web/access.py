"""Access control: each request -> the token holder and the role, or a 4xx; each response -> strict security headers.

Host     A request with an unknown Host header is refused, so a foreign page cannot reach the service by DNS rebinding.
Cookie   A request with long cookies is refused before they are read, and only the service's own cookie is read.
Token    A bearer token, or the cookie of a session. On loopback, until the first token is created, the user who runs
         the service is an admin without one, and every other local user may read.
Origin   A request that changes something must come from the service's own pages, or from a program, not a browser.
Role     Reading needs `read`; evidence and actions need more. A change needs the role that its page or its part of the
         API declares.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from urllib.parse import quote, urlsplit

from anyio import CapacityLimiter, to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clustertwin.core.errors import SettingsError, TwinError
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.store.database_readers import reading_as
from clustertwin.service.store.tokens import Role, TokenHolder, Tokens
from clustertwin.service.web import local_users
from clustertwin.service.web.binding import Binding
from clustertwin.service.web.contract import MAX_BODY_BYTES, RouteGroup
from clustertwin.service.web.unavailable import unavailable

COOKIE = "twin_session"
MAX_COOKIE_BYTES = 8192
#: Threads that read tokens and sessions. They are not those of the pages, which may all wait for a slow query.
THREADS = 4
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
#: Paths that need no token, besides the public pages: the health check, and the styles of the login page.
PUBLIC = ("/healthz", "/static")

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:@/\[\]\s]+)(?::[0-9]{0,5})?")
_log = logging.getLogger("uvicorn.error")

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with `no-referrer`, browsers omit the Origin of the service's own forms too
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """ASGI middleware around the whole app."""

    def __init__(self, app: ASGIApp, state: ServiceState, binding: Binding, groups: Sequence[RouteGroup]) -> None:
        self.app, self.state, self.binding = app, state, binding
        self.hosts = _hosts(binding)
        self._public = (*PUBLIC, *(path for group in groups if group.public for path in group.paths))
        self._change_roles = {path: group.change_role for group in groups for path in group.paths}
        self._body_bytes = {path: group.body_bytes for group in groups for path in group.paths}
        self._read_roles = {path: group.read_role for group in groups for path in group.paths}

    @cached_property
    def _threads(self) -> CapacityLimiter:  # made by the first request, inside the event loop
        return CapacityLimiter(THREADS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_strictly(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if not scope["path"].startswith("/static/"):
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        if self._is_public(scope["path"]):
            refusal = self._refusal(scope)
        else:  # it reads the database, which must not stop the requests that do not
            refusal = await to_thread.run_sync(self._refusal, scope, limiter=self._threads)
        if refusal is not None:
            await refusal(scope, receive, send_strictly)
            return
        with reading_as("request"):
            await self.app(scope, _bounded(receive, self._most_bytes(scope["path"])), send_strictly)

    def needed_role(self, path: str, method: str) -> Role:
        """The role that a request needs. A change outside every known group needs `vet`."""
        if method in SAFE_METHODS:
            return next((role for prefix, role in self._read_roles.items() if _is_below(path, prefix)), "read")
        return next((role for prefix, role in self._change_roles.items() if _is_below(path, prefix)), "vet")

    def _is_public(self, path: str) -> bool:
        return any(_is_below(path, prefix) for prefix in self._public)

    def _most_bytes(self, path: str) -> int:
        """The longest body of a request."""
        found = (most for prefix, most in self._body_bytes.items() if _is_below(path, prefix))
        return next(found, MAX_BODY_BYTES)

    def _refusal(self, scope: Scope) -> Response | None:
        """The refusal, or None. Stores name and role of the token holder in the request's state."""
        headers = Headers(scope=scope)
        path, method = scope["path"], scope["method"]
        if _name(headers.get("host", "")) not in self.hosts:
            return _refuse(421, "unknown Host header; add the name to service.names")
        if sum(map(len, headers.getlist("cookie"))) > MAX_COOKIE_BYTES:
            return _refuse(
                431, f"the cookies are larger than {MAX_COOKIE_BYTES} bytes; delete the cookies of this host"
            )
        if "content-length" in headers and "transfer-encoding" in headers:
            # A proxy before the service could see another end of this request, and so another next one.
            return _refuse(400, "the length of the request is stated twice", {"Connection": "close"})
        length = headers.get("content-length", "0")
        most_bytes = self._most_bytes(path)
        if not length.isdecimal() or float(length) > most_bytes:
            return _refuse(413, f"the request body is larger than {most_bytes} bytes")
        if method not in SAFE_METHODS and not self._same_origin(headers):
            return _refuse(403, "a request that changes something must come from this service's own pages")
        values = scope.setdefault("state", {})
        values.update(who="", role="", session=session_of(headers))
        if self._is_public(path):
            return None
        try:
            holder = self._holder(headers, scope)
        except TwinError as error:
            _log.warning("%s", error)
            return unavailable(
                "The database of this service cannot be read, so no request can be checked. The log of the service has "
                "the reason.",
                headers.get("accept", ""),
            )
        if holder is None:
            if "text/html" in headers.get("accept", "") and method == "GET":
                return RedirectResponse(f"/login?to={quote(path)}", 303)
            return _refuse(401, "this request needs a token", {"WWW-Authenticate": "Bearer"})
        needed = self.needed_role(path, method)
        values.update(who=holder.name, role=holder.role, is_allowed=lambda: self._is_allowed(headers, scope, needed))
        if holder.may(needed):
            return None
        hint = "; log in with a token" if "local user" in holder.name else ""
        return _refuse(403, f"this request needs the role {needed}; your role is {holder.role}{hint}")

    def _holder(self, headers: Headers, scope: Scope) -> TokenHolder | None:
        with reading_as("guard"):
            return self._find_holder(headers, scope)

    def _find_holder(self, headers: Headers, scope: Scope) -> TokenHolder | None:
        tokens = Tokens(self.state.store.database)
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return tokens.holder(token.strip())
        if session := session_of(headers):
            holder = tokens.session_holder(session)
            if holder is not None:
                return holder
        if self.binding.loopback and not tokens.needed():
            return TokenHolder(*local_users.rights(_peer_uid(scope)))
        return None

    def _is_allowed(self, headers: Headers, scope: Scope, role: Role) -> bool:
        """Whether a request that has begun may go on: its token may have been removed or may have expired."""
        try:
            holder = self._holder(headers, scope)
        except TwinError:
            return False
        return holder is not None and holder.may(role)

    def _same_origin(self, headers: Headers) -> bool:
        """Browsers send the origin of a request. A request without one is not from a browser and carries no cookie."""
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        origin = headers.get("origin")
        if origin is not None:
            try:
                parts = urlsplit(origin)
            except ValueError:  # not a URL
                return False
            return parts.netloc.lower() == headers.get("host", "").lower() and parts.scheme in ("http", "https")
        return not session_of(headers) or "sec-fetch-site" in headers


def _peer_uid(scope: Scope) -> int | None:
    """The local user of a connection. It is looked up once for each request: a stream asks again and again."""
    if "twin.peer_uid" not in scope:
        scope["twin.peer_uid"] = local_users.peer_uid(scope.get("client"), scope.get("server"))
    uid: int | None = scope["twin.peer_uid"]
    return uid


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")


def session_of(headers: Headers) -> str:
    """The value of our cookie, or an empty string. Cookies of other services on this host are not parsed."""
    for cookies in headers.getlist("cookie"):
        for cookie in cookies.split(";"):
            name, _, value = cookie.partition("=")
            if name.strip() == COOKIE:
                return value.strip()
    return ""


def _hosts(binding: Binding) -> set[str]:
    own = [binding.host] if binding.host not in ("0.0.0.0", "::") else []
    names: Iterable[str] = (*LOOPBACK, *own, *binding.names)
    hosts = {name: _name(f"[{name}]" if ":" in name and not name.startswith("[") else name) for name in names}
    if wrong := next((name for name, host in hosts.items() if not host), None):
        # Its empty name would be the name of every Host header that is none.
        raise SettingsError(f"service.names: {wrong!r} is not a host name such as twin.example.org")
    return set(hosts.values())


def _name(host: str) -> str:
    """`Example.org:8790` -> `example.org`; an IPv6 address keeps its brackets. Empty if it is not a host and a port."""
    found = _HOST.fullmatch(host)
    return found[1].lower() if found else ""


def _bounded(receive: Receive, most_bytes: int) -> Receive:
    """Disconnect a client that sends more than the limit without a Content-Length header."""
    received_bytes = 0

    async def bounded() -> Message:
        nonlocal received_bytes
        message = await receive()
        received_bytes += len(message.get("body", b""))
        return message if received_bytes <= most_bytes else {"type": "http.disconnect"}

    return bounded


def _refuse(code: int, reason: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"detail": reason}, code, headers)
