"""HTTP/1.1 for one node: connections in -> /metrics, /ring and a landing page out.

Hand-made because a scrape must cost less than a millisecond and 25 MB must hold everything: http.server and
asyncio each take 10 MB. A thread a connection, few connections, small requests without bodies, and a
deadline on everything a client does: `reap` ends the connection of whoever is later than that.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clustertwin import __version__
from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.exporter.exposition import CONTENT_TYPE
from clustertwin.telemetry.exporter.webconfig import Passwords, WebConfig, server_context

if TYPE_CHECKING:
    import ssl

MAX_CONNECTIONS = 32
MAX_REQUEST_BYTES = 8192
REQUEST_S = 10.0  # for a handshake, or from the first byte of a request to its last
ANSWER_S = 30.0  # to take an answer off our hands
IDLE_S = 120.0  # between two requests
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
    """A status and its body, whole or in pieces."""

    status: int
    body: bytes | Iterator[bytes]
    content_type: str = PLAIN
    headers: tuple[str, ...] = ()
    closes: bool = False


def refusal(status: int, reason: str, *headers: str) -> Answer:
    return Answer(
        status, f"{status} {REASONS[status]}: {reason}\n".encode(), headers=headers, closes=status in (400, 431)
    )


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


class Site:
    """What is where: a request -> an answer."""

    def __init__(
        self,
        node: str,
        scrape: Callable[[], bytes],
        ring_since: Callable[[float], Iterator[bytes] | None],
        telemetry_path: str = "/metrics",
        users: dict[str, str] | None = None,
    ) -> None:
        self._scrape, self._ring_since, self._telemetry_path = scrape, ring_since, telemetry_path
        self._passwords = Passwords(users) if users else None
        self._landing = _landing_page(node, telemetry_path)

    def answer(self, request: Request) -> Answer:
        if self._passwords and not self._is_welcome(request.headers.get("authorization", "")):
            return refusal(401, "a name and a password are needed", 'WWW-Authenticate: Basic realm="clustertwin"')
        if request.path not in (self._telemetry_path, "/ring", "/"):
            return refusal(404, f"there are {self._telemetry_path}, /ring and /")
        if request.method not in ("GET", "HEAD"):
            return refusal(405, "only GET and HEAD", "Allow: GET, HEAD")
        if request.path == self._telemetry_path:
            return Answer(200, self._scrape(), CONTENT_TYPE)
        if request.path == "/ring":
            return self._ring(request.query)
        return Answer(200, self._landing, "text/html; charset=utf-8")

    def _ring(self, query: str) -> Answer:
        key, _, value = (query or "since=0").partition("=")
        try:
            since_s = float(value) if key == "since" else math.nan
        except ValueError:
            since_s = math.nan
        if not math.isfinite(since_s):
            return refusal(400, "since must be seconds since 1970, as in /ring?since=1731700000.5")
        pieces = self._ring_since(since_s)
        return Answer(200, pieces) if pieces is not None else refusal(404, "this exporter keeps no ring")

    def _is_welcome(self, authorization: str) -> bool:
        assert self._passwords
        scheme, _, encoded = authorization.partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            name, colon, password = base64.b64decode(encoded, validate=True).decode("utf-8").partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        return bool(colon) and self._passwords.is_right(name, password)


class Connection:
    """One client, served in its own thread until it leaves or is late."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext | None, site: Site) -> None:
        self._socket, self._context, self._site = sock, context, site
        self.deadline_s = time.monotonic() + REQUEST_S
        self.is_idle = False

    def run(self) -> None:
        try:
            if self._context:
                # The handshake comes after the assignment, so that `end` can reach a client that is slow at it.
                secured = self._context.wrap_socket(self._socket, server_side=True, do_handshake_on_connect=False)
                self._socket = secured
                secured.do_handshake()
            rest = b""
            while True:
                head, rest = self._receive(rest)
                if not head or not self._respond(head):
                    break
        except OSError:
            pass  # the client went, spoke no TLS, or was late
        finally:
            self._socket.close()

    def end(self) -> None:
        """Wake the thread up with an end of file; it closes the socket itself."""
        with contextlib.suppress(OSError):
            # Not SSLSocket's own shutdown, which would wait for the other side.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _receive(self, data: bytes) -> tuple[bytes, bytes]:
        """The next request's head and what follows it; an empty head when the client has left."""
        if not data:
            self.deadline_s, self.is_idle = time.monotonic() + IDLE_S, True
        while b"\r\n\r\n" not in data:
            if len(data) > MAX_REQUEST_BYTES:
                self._send("GET", False, refusal(431, f"a request has at most {MAX_REQUEST_BYTES} bytes"))
                return b"", b""
            more = self._socket.recv(MAX_REQUEST_BYTES)
            if not more:
                return b"", b""
            if not data:
                self.deadline_s, self.is_idle = time.monotonic() + REQUEST_S, False
            data += more
        head, _, rest = data.partition(b"\r\n\r\n")
        return head, rest

    def _respond(self, head: bytes) -> bool:
        """Answer one request; whether the connection goes on."""
        request = parse_request(head)
        if isinstance(request, Answer):
            self._send("GET", False, request)
            return False
        answer = self._site.answer(request)
        self.deadline_s = time.monotonic() + ANSWER_S
        self._send(request.method, request.is_http_1_0, answer)
        return not (answer.closes or request.closes)

    def _send(self, method: str, is_http_1_0: bool, answer: Answer) -> None:
        lines = [
            f"HTTP/1.1 {answer.status} {REASONS[answer.status]}",
            f"Content-Type: {answer.content_type}",
            "X-Content-Type-Options: nosniff",
            *answer.headers,
        ]
        if isinstance(answer.body, bytes):
            lines.append(f"Content-Length: {len(answer.body)}")
        elif not is_http_1_0:
            lines.append("Transfer-Encoding: chunked")
        if answer.closes or is_http_1_0:
            lines.append("Connection: close")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        if method == "HEAD":
            self._socket.sendall(head)
        elif isinstance(answer.body, bytes):
            self._socket.sendall(head + answer.body)
        else:
            self._socket.sendall(head)
            for piece in answer.body:
                if piece:
                    self._socket.sendall(piece if is_http_1_0 else b"%x\r\n%b\r\n" % (len(piece), piece))
            if not is_http_1_0:
                self._socket.sendall(b"0\r\n\r\n")


class Server:
    """A listening socket and its connections."""

    def __init__(self, host: str, port: int, config: WebConfig, site: Site) -> None:
        self._context = server_context(config.tls) if config.tls else None
        self._site = site
        self._connections: set[Connection] = set()
        self._lock = threading.Lock()
        self._is_closing = False
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server((host, port), family=family, backlog=64)
        except OSError as error:
            raise SettingsError(f"--web.listen-address={host}:{port}: {error.strerror or error}") from error
        self.port: int = self._listener.getsockname()[1]

    def start(self) -> None:
        """Accept in the background."""
        threading.Thread(target=self._accept, name="accept", daemon=True).start()

    def reap(self, now_s: float) -> None:
        """End the connections that are late; called every second or so."""
        with self._lock:
            late = [connection for connection in self._connections if connection.deadline_s < now_s]
        for connection in late:
            connection.end()

    def close(self) -> None:
        """Stop accepting and end every connection."""
        self._is_closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # closing alone would not wake up who waits in accept
        self._listener.close()
        self.reap(math.inf)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                if self._is_closing:
                    return
                time.sleep(0.1)  # out of descriptors for a moment
                continue
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(sock, self._context, self._site)
            with self._lock:
                self._make_room()
                self._connections.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        try:
            connection.run()
        finally:
            with self._lock:
                self._connections.discard(connection)

    def _make_room(self) -> None:
        """A newcomer takes the place of whoever is idle, else of whoever is nearest to being late."""
        if len(self._connections) >= MAX_CONNECTIONS:
            victim = min(self._connections, key=lambda c: (not c.is_idle, c.deadline_s))
            self._connections.discard(victim)
            victim.end()


def _escaped(text: str) -> str:
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(char, entity)
    return text


def _landing_page(node: str, telemetry_path: str) -> bytes:
    name, path = _escaped(node), _escaped(telemetry_path)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>clustertwin exporter · {name}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:4em auto;padding:0 1em}}</style></head>
<body><h1>clustertwin exporter</h1>
<p>Node <strong>{name}</strong>, version {__version__}.</p>
<ul><li><a href="{path}">{path}</a>: this node's counters, now</li>
<li><a href="/ring">/ring</a>: the kernel's own counters, second by second, of the last minutes
(<code>?since=</code> seconds since 1970)</li></ul></body></html>
""".encode()
