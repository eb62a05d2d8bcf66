"""The part of HTTP/1.1 that an exporter needs: head of a request -> HttpRequest; HttpResponse -> head of a response."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
}
PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request; requests to an exporter have no body."""

    method: str
    path: str
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)  # names in lower case
    is_http_1_0: bool = False

    @property
    def closes(self) -> bool:
        return self.is_http_1_0 or self.headers.get("connection", "").lower() == "close"


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
    return HttpResponse(status, [text.encode()], headers=headers, closes=status in (400, 431))


def parse_request(head: bytes) -> HttpRequest | HttpResponse:
    """The head of a request, without its empty line -> the request, or the refusal to send instead."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0") or not words[1].startswith("/"):
        return refusal(400, "the first line is not an HTTP/1.1 request")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            return refusal(400, "a header line has no name")
        headers[name.lower()] = value.strip()
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        return refusal(400, "a request must not have a body")
    path, _, query = words[1].partition("?")
    return HttpRequest(words[0], path, query, headers, words[2] == "HTTP/1.0")


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
