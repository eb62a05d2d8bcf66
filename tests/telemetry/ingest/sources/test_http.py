"""HTTP requests: limited retries, deadlines, and errors with address and reason."""

from __future__ import annotations

import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from tests.servers import free_address

from clustertwin.core.errors import SettingsError, SourceError
from clustertwin.telemetry.ingest.sources.http import Endpoint, HttpClient


def quick(url: str, **settings: Any) -> HttpClient:
    return HttpClient(Endpoint(url, backoff_s=0.001, **settings))


def test_a_transient_error_is_retried(server: Any) -> None:
    server.say("busy", 503)
    server.say("busy", 503)
    server.say("here")
    assert quick(server.url).get("/x", {"a": "b c"}) == b"here"
    assert [path for path, _ in server.requests] == ["/x?a=b+c"] * 3


def test_attempts_are_limited_and_the_last_reason_is_reported(server: Any) -> None:
    server.say('{"status":"error","errorType":"timeout","error":"query timed out"}', 503)
    with pytest.raises(SourceError, match=rf"{server.url}/x: HTTP 503: query timed out"):
        quick(server.url, tries=3).get("/x")
    assert len(server.requests) == 3


def test_a_refusal_is_not_retried(server: Any) -> None:
    server.say("<h1>who are you?</h1>", 401)
    with pytest.raises(SourceError, match="HTTP 401: <h1>who are you"):
        quick(server.url).get("/x")
    assert len(server.requests) == 1


def test_a_refused_connection_is_reported_with_the_address() -> None:
    address = free_address()
    with pytest.raises(SourceError, match=rf"http://{address}/x: .*refused"):
        quick(f"http://{address}").get("/x")


def drip(request: BaseHTTPRequestHandler) -> None:
    """One byte now and then, for ever."""
    request.send_response(200)
    request.send_header("Content-Length", "1000000")
    request.end_headers()
    try:
        while True:
            request.wfile.write(b".")
            time.sleep(0.01)
    except OSError:
        request.close_connection = True


@pytest.mark.medium
def test_a_slow_response_ends_at_the_deadline(server: Any) -> None:
    server.answers.append(drip)
    with pytest.raises(SourceError, match=r"no response within 0\.3 s"):
        quick(server.url, deadline_s=0.3).get("/x")
    assert len(server.requests) == 1


def test_a_response_above_the_size_limit_is_not_read(server: Any) -> None:
    server.say(b"." * 100_000)
    with pytest.raises(SourceError, match="more than 1000 bytes"):
        quick(server.url, most_bytes=1000).get("/x")


def test_cookies_of_a_server_are_neither_kept_nor_sent_back(server: Any) -> None:
    """A hostile server could add a thousand to every answer, for as long as the service runs."""

    def set_cookies(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        for number in range(20):
            request.send_header("Set-Cookie", f"c{len(server.requests)}x{number}=1; Max-Age=999999")
        request.send_header("Content-Length", "0")
        request.end_headers()

    server.answers.append(set_cookies)
    client = quick(server.url)
    for _ in range(3):
        client.get("/x")
    assert client._client is not None
    assert not client._client.cookies
    assert [headers["Cookie"] for _, headers in server.requests] == [None] * 3


def test_user_and_token_are_sent_and_never_shown(server: Any) -> None:
    server.say("ok")
    user, token = Endpoint(server.url, username="u", password="secret"), Endpoint(server.url, bearer_token="secret")
    HttpClient(user).get("/")
    HttpClient(token).get("/")
    assert [headers["Authorization"] for _, headers in server.requests] == ["Basic dTpzZWNyZXQ=", "Bearer secret"]
    assert "secret" not in repr(user) + repr(token)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"url": "prometheus:9090"}, "is not an address like"),
        ({"url": "ftp://prometheus"}, "is not an address like"),
        ({"url": "http://me:secret@prometheus"}, "not in the address"),
        ({"url": "http://p", "username": "u", "bearer_token": "t"}, "not both"),
    ],
)
def test_an_invalid_endpoint_is_refused(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason) as error:
        Endpoint(**settings)
    assert "secret" not in str(error.value)


def test_an_unreadable_authority_is_a_settings_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"ca\.pem: cannot be read as a certificate authority"):
        quick("https://127.0.0.1:9", ca_file=str(tmp_path / "ca.pem")).get("/")


@pytest.mark.real
def test_a_certificate_is_trusted_only_by_its_own_authority(secure: tuple[str, Path]) -> None:
    url, certificate = secure
    assert quick(url, ca_file=str(certificate)).get("/cert.pem").startswith(b"-----BEGIN")
    with pytest.raises(SourceError, match="certificate verify failed"):
        quick(url, tries=1).get("/cert.pem")


@pytest.mark.real
def test_a_scheme_in_capital_letters_is_checked_as_well(secure: tuple[str, Path]) -> None:
    url = secure[0].replace("https", "HTTPS")
    with pytest.raises(SourceError, match="certificate verify failed"):
        quick(url, tries=1).get("/cert.pem")


@pytest.mark.parametrize(
    "url",
    ["http://h:99999", "http://h:-1", "http://h:x", "http://[::1", "http://h\r\nX: y:1", "http://h:1/a b", "http://h\0:1",
     "file:///etc/passwd", "gopher://h", "http://", "http://h:0"],
)  # fmt: skip
def test_an_address_that_is_none_is_refused_in_one_sentence(url):
    with pytest.raises(SettingsError, match="is not an address like http://host:9090"):
        Endpoint(url)


def test_a_token_cannot_add_lines_to_a_request():
    with pytest.raises(SettingsError, match="a bearer token is one word"):
        Endpoint("http://h:1", bearer_token="a\r\nX-Role: admin")
