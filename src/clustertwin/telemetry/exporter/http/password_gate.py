"""Basic authentication of requests: a request -> None if it may pass, else the refusal."""

from __future__ import annotations

import base64

from clustertwin.telemetry.exporter.http.messages import HttpRequest, HttpResponse, refusal
from clustertwin.telemetry.exporter.http.passwords import PasswordQueueFull, Passwords


class PasswordGate:
    """Without users, every request passes."""

    def __init__(self, users: dict[str, str] | None) -> None:
        self._passwords = Passwords(users) if users else None

    def refusal_of(self, request: HttpRequest) -> HttpResponse | None:
        try:
            if self._passwords and not _is_authorized(self._passwords, request):
                wanted = 'WWW-Authenticate: Basic realm="clustertwin"'
                return refusal(401, "user name and password are required", wanted)
        except PasswordQueueFull:
            return refusal(503, "too many passwords are being checked; try again", "Retry-After: 1")
        return None


def _is_authorized(passwords: Passwords, request: HttpRequest) -> bool:
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return False
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).decode("utf-8").partition(":")
    except ValueError:  # not ASCII, not base64, or not UTF-8
        return False
    return bool(colon) and passwords.is_right(name, password, request.client)
