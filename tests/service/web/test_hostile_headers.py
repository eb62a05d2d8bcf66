"""Headers of requests to the service, damaged or hostile: the guard answers or lets pass, and never raises."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from starlette.datastructures import Headers
from tests.hostile_inputs import damaged, fuzzed, one_of, scratch

from clustertwin.service.store.event_store import Store
from clustertwin.service.store.tokens import Tokens
from clustertwin.service.web.access import COOKIE, Guard, session_of
from clustertwin.service.web.binding import Binding

STORE = Store(scratch("headers") / "state.sqlite")
TOKENS = Tokens(STORE.database)
SESSION = TOKENS.start_session(TOKENS.add("ada", "read", 0.0))
GUARD = Guard(None, SimpleNamespace(store=STORE), Binding(), ())  # type: ignore[arg-type]
NAMES = [b"host", b"origin", b"sec-fetch-site", b"authorization", b"content-length", b"accept", b"cookie"]
VALUES = (b"127.0.0.1:8790", b"http://127.0.0.1:8790", b"same-origin", b"Bearer twin_x", b"12", b"[::1]:8790")


@fuzzed("cookie", one_of(*NAMES), damaged(*VALUES), values=(b"host", b"127.0.0.1:8790"))
def test_cookies_and_other_headers(cookie: bytes, name: bytes, value: bytes) -> None:
    headers = [(b"host", b"127.0.0.1:8790"), (b"cookie", cookie), (name, value)]
    if name == b"host":
        headers = headers[1:]
    assert session_of(Headers(raw=headers)) in (cookie + value).decode("latin-1")
    scope = {"type": "http", "method": "POST", "path": "/api/v1/maintenance", "headers": headers, "client": None}
    refusal = GUARD._refusal(scope)
    assert refusal is not None
    assert refusal.status_code in (401, 403, 413, 421, 431)


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [(b"origin", b"http://[", 403), (b"content-length", b"9" * 5000, 413), (b"content-length", b"-1", 413)],
)
def test_headers_that_raised_an_error_are_refused(name: bytes, value: bytes, status: int) -> None:
    headers = [(b"host", b"127.0.0.1:8790"), (name, value)]
    scope = {"type": "http", "method": "POST", "path": "/api/v1/maintenance", "headers": headers, "client": None}
    refusal = GUARD._refusal(scope)
    assert refusal is not None
    assert refusal.status_code == status


def test_the_session_in_a_cookie_is_found() -> None:
    headers = Headers(raw=[(b"cookie", f'other="a; b"; {COOKIE}={SESSION}'.encode())])
    assert TOKENS.session_holder(session_of(headers)) is not None
