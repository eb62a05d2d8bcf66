"""The door of the service: every request -> who asks and whether they may, or a 4xx; every answer -> strict headers.

Host    a name that is not ours is refused, so that no foreign page can reach us by a name of its own (DNS rebinding)
Who     a token as bearer or cookie; on loopback, and as long as no token was made, whoever is on this machine
Origin  what changes something must come from our own pages, or from a program that is no browser
Role    reading needs read; verdicts and quiet times need vet; models, learning and the like need admin
"""

from __future__ import annotations

import getpass
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clustertwin.core.errors import SettingsError
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.store.tokens import Holder, Tokens

COOKIE = "twin_token"
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
MOST_BYTES = 1 << 20
SAFE = ("GET", "HEAD", "OPTIONS")
#: Paths that anybody may ask for: to log in and out, to look whether it lives, and what the login page is drawn with.
OPEN = ("/login", "/logout", "/healthz", "/static/")
#: What needs more than `vet` to change.
ADMIN = ("/models", "/api/v1/models", "/api/v1/learning")

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with none at all, browsers hide the origin of our own forms from us too
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class Binding:
    """Where the service listens, and as what it is known there."""

    host: str = "127.0.0.1"
    port: int = 8790
    names: tuple[str, ...] = ()  # further host names that requests may carry
    certificate: str = ""
    key: str = field(default="", repr=False)

    @property
    def loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{host}:{self.port}"


def check_binding(binding: Binding, tokens: Tokens) -> None:
    """Beyond loopback nobody gets in without TLS and a token; said before anything listens."""
    if bool(binding.certificate) != bool(binding.key):
        raise SettingsError("TLS needs both a certificate and a key")
    if binding.loopback:
        return
    missing = [] if binding.certificate else ["TLS (certificate and key)"]
    if not tokens.all():
        missing.append("at least one token (`twin token add NAME --role admin`)")
    if missing:
        raise SettingsError(
            f"{binding.host} can be reached from outside this machine: it needs {' and '.join(missing)}"
        )


class Guard:
    """ASGI middleware around the whole app."""

    def __init__(self, app: ASGIApp, state: ServiceState, binding: Binding) -> None:
        self.app, self.state, self.binding = app, state, binding
        self.hosts = _hosts(binding)

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

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send_strictly)
            return
        await self.app(scope, _bounded(receive), send_strictly)

    def _refusal(self, scope: Scope) -> Response | None:
        """Why not, or None; notes who it is for those who come after."""
        headers = Headers(scope=scope)
        path, method = scope["path"], scope["method"]
        if _name(headers.get("host", "")) not in self.hosts:
            return _no(421, "this service is not known by that Host")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            return _no(413, f"more than {MOST_BYTES} bytes")
        if method not in SAFE and not self._from_us(headers):
            return _no(403, "a change must come from this service's own pages")
        holder = self._holder(headers)
        scope.setdefault("state", {}).update(who=holder.name if holder else "", role=holder.role if holder else "")
        if any(path == free or (free.endswith("/") and path.startswith(free)) for free in OPEN):
            return None
        if holder is None:
            if "text/html" in headers.get("accept", "") and method == "GET":
                return RedirectResponse(f"/login?to={quote(path)}", 303)
            return _no(401, "a token is needed", {"WWW-Authenticate": "Bearer"})
        needed = _needed(path, method)
        return None if holder.may(needed) else _no(403, f"role {holder.role} may not do this; it needs {needed}")

    def _holder(self, headers: Headers) -> Holder | None:
        token, tokens = _token(headers), Tokens(self.state.store.database)
        if token:
            return tokens.holder(token)
        if self.binding.loopback and not tokens.all():
            return Holder(_me(), "admin")
        return None

    def _from_us(self, headers: Headers) -> bool:
        """Browsers say where a request comes from; one that says nothing is no browser, and carries no cookie."""
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        origin = headers.get("origin")
        if origin is not None:
            parts = urlsplit(origin)
            return parts.netloc.lower() == headers.get("host", "").lower() and parts.scheme in ("http", "https")
        return COOKIE not in headers.get("cookie", "") or "sec-fetch-site" in headers


def _needed(path: str, method: str) -> str:
    if method in SAFE:
        return "read"
    return "admin" if any(path == p or path.startswith(f"{p}/") for p in ADMIN) else "vet"


def _token(headers: Headers) -> str:
    kind, _, token = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return token.strip()
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return cookie.value if cookie else ""


def _hosts(binding: Binding) -> set[str]:
    own = [binding.host] if binding.host not in ("0.0.0.0", "::") else []
    names: Iterable[str] = (*LOOPBACK, *own, *binding.names)
    return {_name(f"[{name}]" if ":" in name and not name.startswith("[") else name) for name in names}


def _name(host: str) -> str:
    """`Example.org:8790` -> `example.org`; an IPv6 address keeps its brackets."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()


def _bounded(receive: Receive) -> Receive:
    """A body without a length is cut off where one with it would be refused."""
    seen = 0

    async def bounded() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        return message if seen <= MOST_BYTES else {"type": "http.disconnect"}

    return bounded


def _no(code: int, why: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"detail": why}, code, headers)


def _me() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "local"
