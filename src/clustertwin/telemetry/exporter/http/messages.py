"""HTTP/1.1 as far as an exporter needs it: the head of a request -> a Request; an Answer -> the head of a response."""

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
class Request:
    """A request without a body, as far as we read one."""

    method: str
    path: str
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)  # names in lower case
    is_http_1_0: bool = False

    @property
    def closes(self) -> bool:
        return self.is_http_1_0 or self.headers.get("connection", "").lower() == "close"


@dataclass(frozen=True, slots=True)
class Answer:
    """A status and its body: a list of pieces, or an iterator where its length is not known beforehand."""

    status: int
    body: list[bytes] | Iterator[bytes]
    content_type: str = PLAIN
    headers: tuple[str, ...] = ()
    closes: bool = False


def refusal(status: int, reason: str, *headers: str) -> Answer:
    """An error that says why; after a request that could not be read nothing on the connection can be."""
    text = f"{status} {REASONS[status]}: {reason}\n"
    return Answer(status, [text.encode()], headers=headers, closes=status in (400, 431))


def parse_request(head: bytes) -> Request | Answer:
    """The head of a request, without its empty line; or what to answer to one that is none."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0") or not words[1].startswith("/"):
        return refusal(400, "the first line is no request of HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            return refusal(400, "a header line is none")
        headers[name.lower()] = value.strip()
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        return refusal(400, "requests here have no body")
    path, _, query = words[1].partition("?")
    return Request(words[0], path, query, headers, words[2] == "HTTP/1.0")


def head_of(answer: Answer, is_http_1_0: bool, closes: bool) -> bytes:
    """The status line and headers; a body of unknown length is sent in chunks, which HTTP/1.0 does not know."""
    lines = [
        f"HTTP/1.1 {answer.status} {REASONS[answer.status]}",
        f"Content-Type: {answer.content_type}",
        "X-Content-Type-Options: nosniff",
        *answer.headers,
    ]
    if isinstance(answer.body, list):
        lines.append(f"Content-Length: {sum(map(len, answer.body))}")
    elif not is_http_1_0:
        lines.append("Transfer-Encoding: chunked")
    if closes:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
