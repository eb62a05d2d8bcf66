"""Serve routes over HTTP/1.1, with or without TLS: one thread for each connection.

A scrape must cost less than a millisecond and the whole exporter must fit into 25 MB. http.server and asyncio need
10 MB each, so this server is our own. It allows few connections and small requests without a body, and sets a deadline
for everything a client does: `reap` ends the connections that missed theirs.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
from typing import TYPE_CHECKING

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.exporter.http.messages import (
    HttpRequest,
    HttpResponse,
    Responder,
    has_bare_lf,
    head_of,
    parse_request,
    refusal,
)
from clustertwin.telemetry.exporter.http.request_rate import RequestRate
from clustertwin.telemetry.exporter.http.webconfig import WebConfig, server_context

if TYPE_CHECKING:
    import ssl

MAX_CONNECTIONS = 32  # and threads: a connection counts until its thread has ended
ROOM_S = 1.0  # to wait for the thread of an ended connection
MAX_REQUEST_BYTES = 8192
REQUEST_S = 10.0  # for a handshake, or from the first byte of a request to its last
ANSWER_S = 30.0  # to receive a response
IDLE_S = 120.0  # between two requests


class Connection:
    """One client, served in its own thread until it disconnects or misses a deadline."""

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext | None, routes: Responder, rate: RequestRate
    ) -> None:
        self._socket, self._context, self._routes, self._rate = sock, context, routes, rate
        self._client = str(sock.getpeername()[0])
        self.deadline_s = time.monotonic() + REQUEST_S
        self.is_idle = self.has_ended = False

    def run(self) -> None:
        try:
            if self._context:
                # The assignment comes before the handshake, so that `end` can stop a slow handshake.
                secured = self._context.wrap_socket(self._socket, server_side=True, do_handshake_on_connect=False)
                self._socket = secured
                secured.do_handshake()
            rest = b""
            while True:
                head, rest = self._receive(rest)
                if not head or not self._respond(head):
                    break
        except OSError:
            pass  # the client disconnected, did not use TLS, or missed a deadline
        finally:
            self._socket.close()

    def end(self) -> None:
        """Make the thread read an end of file; it then closes the socket itself."""
        self.has_ended = True
        with contextlib.suppress(OSError):
            # Not the shutdown of SSLSocket, which waits for the client.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _receive(self, data: bytes) -> tuple[bytes, bytes]:
        """The head of the next request and the bytes after it; an empty head if the client has disconnected."""
        if not data:
            self.deadline_s, self.is_idle = time.monotonic() + IDLE_S, True
        while b"\r\n\r\n" not in data:
            if has_bare_lf(data):
                self._send(refusal(400, "a line must end with CR LF"))
                return b"", b""
            if len(data) > MAX_REQUEST_BYTES:
                self._send(refusal(431, f"a request may have at most {MAX_REQUEST_BYTES} bytes"))
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
        """Answer one request; True if the connection stays open."""
        request: HttpRequest | HttpResponse
        if self._rate.allows(self._client, time.monotonic()):
            request = parse_request(head, self._client)
        else:
            request = refusal(429, "this address asks too often", "Retry-After: 1")
        if isinstance(request, HttpResponse):
            self._send(request)
            return False
        response = self._routes.respond(request)
        self.deadline_s = time.monotonic() + ANSWER_S
        closes = response.closes or request.closes
        self._send(response, request.method == "HEAD", request.is_http_1_0, closes)
        return not closes

    def _send(
        self, response: HttpResponse, only_head: bool = False, is_http_1_0: bool = False, closes: bool = True
    ) -> None:
        head = head_of(response, is_http_1_0, closes)
        if only_head:
            self._socket.sendall(head)
        elif isinstance(response.body, list):
            self._send_pieces([head, *response.body])
        else:
            self._socket.sendall(head)
            for piece in response.body:
                if piece:
                    self._socket.sendall(piece if is_http_1_0 else b"%x\r\n%b\r\n" % (len(piece), piece))
            if not is_http_1_0:
                self._socket.sendall(b"0\r\n\r\n")

    def _send_pieces(self, pieces: list[bytes]) -> None:
        """Let the kernel gather the pieces instead of joining them; TLS cannot do that."""
        sent = 0 if self._context else self._socket.sendmsg(pieces)
        if sent < sum(map(len, pieces)):
            self._socket.sendall(b"".join(pieces)[sent:])


class Server:
    """A listening socket and its connections."""

    def __init__(self, host: str, port: int, config: WebConfig, routes: Responder) -> None:
        self._context = server_context(config.tls) if config.tls else None
        self._routes, self._rate = routes, RequestRate()
        self._connections: set[Connection] = set()
        self._lock = threading.Condition()
        self._is_closing = False
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server((host, port), family=family, backlog=64)
        except OSError as error:
            raise SettingsError(f"--web.listen-address={host}:{port}: {error.strerror or error}") from error
        self.port: int = self._listener.getsockname()[1]

    def start(self) -> None:
        """Accept connections in a background thread."""
        threading.Thread(target=self._accept, name="accept", daemon=True).start()

    def reap(self, now_s: float) -> None:
        """End the connections that missed their deadline; call it about once a second."""
        with self._lock:
            late = [connection for connection in self._connections if connection.deadline_s < now_s]
        for connection in late:
            connection.end()

    def close(self) -> None:
        """Stop accepting and end every connection."""
        self._is_closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # close alone does not interrupt accept
        self._listener.close()
        self.reap(math.inf)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                if self._is_closing:
                    return
                time.sleep(0.1)  # no file descriptor is free at the moment
                continue
            try:
                self._admit(sock)
            except (OSError, RuntimeError, MemoryError):
                # The client has disconnected, or no thread can start: the next client may have more luck.
                sock.close()

    def _admit(self, sock: socket.socket) -> None:
        """Serve a client in its own thread. Without room, disconnect it."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(sock, self._context, self._routes, self._rate)
        with self._lock:
            if not self._make_room():
                sock.close()
                return
            self._connections.add(connection)
        try:
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
        except RuntimeError:
            self._forget(connection)
            raise

    def _serve(self, connection: Connection) -> None:
        try:
            connection.run()
        finally:
            self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        with self._lock:
            self._connections.discard(connection)
            self._lock.notify()

    def _make_room(self) -> bool:
        """At the limit, end an idle connection, or else the one whose deadline is next, and wait for its thread."""
        if len(self._connections) < MAX_CONNECTIONS:
            return True
        serving = [connection for connection in self._connections if not connection.has_ended]
        if serving:
            min(serving, key=lambda c: (not c.is_idle, c.deadline_s)).end()
        return self._lock.wait_for(lambda: len(self._connections) < MAX_CONNECTIONS, ROOM_S)
