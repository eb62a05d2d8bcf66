"""The part of HTTP/1.1 that an exporter needs: head of a request -> HttpRequest; HttpResponse -> head of a response."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}
#: Headers that decide where a request ends and who sent it. Two values could be read as either one.
ONCE = frozenset({"content-length", "transfer-encoding", "host", "authorization", "connection"})
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # a tab is allowed in a value
_BARE_LF = re.compile(rb"(?<!\r)\n")
PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request; requests to an exporter have no body."""

    method: str
    path: str
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)  # names in lower case
    is_http_1_0: bool = False
    client: str = ""  # the address of the client

    @property
    def closes(self) -> bool:
        return self.is_http_1_0 or self.headers.get("connection", "").lower() == "close"


class Responder(Protocol):
    """What a server serves."""

    def respond(self, request: HttpRequest) -> HttpResponse: ...


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A status and a body: a list of pieces, or an iterator if the length is not known in advance."""

    status: int
    body: list[bytes] | Iterator[bytes]
    content_type: str = PLAIN
    headers: tuple[str, ...] = ()
    closes: bool = False


def refusal(status: int, reason: str, *headers: str) -> HttpResponse:
    """An error with its reason. After a request that cannot be parsed the connection is closed."""
    text = f"{status} {REASONS[status]}: {reason}\n"
    return HttpResponse(status, [text.encode()], headers=headers, closes=status in (400, 431, 503))


def has_bare_lf(head: bytes) -> bool:
    """Whether a line ends without a carriage return. A proxy before us may not see the end of such a line."""
    return _BARE_LF.search(head) is not None


def parse_request(head: bytes, client: str = "") -> HttpRequest | HttpResponse:
    """The head of a request, without its empty line -> the request, or the refusal to send instead."""
    lines = head.decode("latin-1").split("\r\n")
    if any(_CONTROL.search(line) for line in lines):
        return refusal(400, "a line must end with CR LF and must not contain control characters")
    words = lines[0].split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0") or not words[1].startswith("/"):
        return refusal(400, "the first line is not an HTTP/1.1 request")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not _NAME.fullmatch(name):
            return refusal(400, "a header line has no valid name")
        name = name.lower()
        if name in ONCE and name in headers:
            return refusal(400, f"the header {name} must occur once")
        headers[name] = value.strip()
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        return refusal(400, "a request must not have a body")
    path, _, query = words[1].partition("?")
    return HttpRequest(words[0], path, query, headers, words[2] == "HTTP/1.0", client)


def head_of(response: HttpResponse, is_http_1_0: bool, closes: bool) -> bytes:
    """The status line and headers. A body of unknown length is sent in chunks, except to HTTP/1.0 clients."""
    lines = [
        f"HTTP/1.1 {response.status} {REASONS[response.status]}",
        f"Content-Type: {response.content_type}",
        "X-Content-Type-Options: nosniff",
        *response.headers,
    ]
    if isinstance(response.body, list):
        lines.append(f"Content-Length: {sum(map(len, response.body))}")
    elif not is_http_1_0:
        lines.append("Transfer-Encoding: chunked")
    if closes:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
