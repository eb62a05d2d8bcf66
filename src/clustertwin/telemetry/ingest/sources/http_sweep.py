"""HTTP GET from many servers at once in one thread: requests -> bodies as they arrive, each within its deadline.

A thread and a client for each of a thousand nodes would spend more time on switching than on reading. Here one thread
waits for all sockets, and connections stay open. Only connecting, which may block on a name or a TLS handshake, is
done in a few extra threads.
"""

from __future__ import annotations

import base64
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import urlencode, urlsplit

from clustertwin.core.errors import SettingsError, SourceError
from clustertwin.telemetry.ingest.http_framing import ChunkEnds, unpack
from clustertwin.telemetry.ingest.sources.http import Endpoint, refused, trust

_CONNECTORS = 16
#: Servers that could not be reached wait in threads of their own, so that they delay no other connection.
_LATE_CONNECTORS = 48
#: Of all responses that are not complete. `Endpoint.most_bytes` limits each.
MOST_HELD_BYTES = 512 << 20


class _ServerConnection:
    """The connection to one server, and the request that waits for a response, if there is one."""

    def __init__(self, endpoint: Endpoint) -> None:
        parts = urlsplit(endpoint.url)
        self.endpoint, self.base = endpoint, endpoint.url.rstrip("/")
        self.host, self.port = endpoint.host, parts.port or (443 if parts.scheme == "https" else 80)
        self._path = parts.path.rstrip("/")
        self._headers = f"Host: {parts.netloc}\r\n{_authorization(endpoint)}"
        self.socket: socket.socket | None = None
        self.connecting: Future[socket.socket] | None = None
        self.where, self.request = "", b""  # empty: no request waits
        self.received, self.chunks = bytearray(), ChunkEnds()
        self.deadline_s = 0.0
        self.is_new = False  # there was no response on this connection yet
        self.is_late = False  # the last attempt to connect failed

    def prepare(self, path: str, params: Mapping[str, str], accept: str, now_s: float) -> None:
        query = f"?{urlencode(params)}" if params else ""
        self.where = self.base + path
        self.request = f"GET {self._path}{path}{query} HTTP/1.1\r\n{self._headers}Accept: {accept}\r\n\r\n".encode()
        self.deadline_s = now_s + self.endpoint.deadline_s

    def connect(self) -> socket.socket:
        """May block, so call it in an extra thread."""
        connected = socket.create_connection((self.host, self.port), self.endpoint.deadline_s)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context := trust(self.endpoint):
                connected = context.wrap_socket(connected, server_hostname=self.host)
            connected.setblocking(False)
        except BaseException:
            connected.close()
            raise
        return connected


def _authorization(endpoint: Endpoint) -> str:
    if endpoint.bearer_token:
        return f"Authorization: Bearer {endpoint.bearer_token}\r\n"
    if endpoint.username:
        pair = base64.b64encode(f"{endpoint.username}:{endpoint.password}".encode()).decode()
        return f"Authorization: Basic {pair}\r\n"
    return ""


class HttpSweep:
    """Servers by number, each with at most one request at a time."""

    def __init__(self, endpoints: Sequence[Endpoint], clock: Callable[[], float] = time.monotonic) -> None:
        self._connections = [_ServerConnection(endpoint) for endpoint in endpoints]
        self._clock = clock
        self._pending: set[int] = set()
        self._awaited: set[int] = set()  # requested since the last round of responses
        self._number: dict[int, int] = {}  # file descriptor -> server
        self._epoll = select.epoll()
        self._wake_reader, self._wake_writer = socket.socketpair()  # a thread that has connected writes to it
        self._wake_reader.setblocking(False)
        self._epoll.register(self._wake_reader, select.EPOLLIN)
        self._pool = ThreadPoolExecutor(_CONNECTORS, "connect")
        self._late_pool = ThreadPoolExecutor(_LATE_CONNECTORS, "connect again")
        self._buffer = bytearray(1 << 18)
        self._held = 0  # bytes of responses that are not complete

    @property
    def pending(self) -> frozenset[int]:
        """The servers that have not responded yet."""
        return frozenset(self._pending)

    def request(self, number: int, path: str, params: Mapping[str, str], accept: str = "*/*") -> None:
        """Send a request; `responses` returns the result."""
        connection = self._connections[number]
        self._forget(connection)
        connection.prepare(path, params, accept, self._clock())
        self._pending.add(number)
        self._awaited.add(number)
        self._send(connection)

    def responses(self, within_s: float) -> Iterator[tuple[int, bytes | SourceError]]:
        """Bodies and failures as they arrive, until `within_s` has passed or every server of this round has responded.

        A server can be requested again as soon as its response is returned. The next round does not wait for a server
        that did not respond in this one, but still returns its response when it arrives.
        """
        until_s = self._clock() + within_s
        while True:
            wait_s = max(until_s - self._clock(), 0.0) if self._awaited else 0.0
            for descriptor, _ in self._epoll.poll(wait_s):
                if descriptor == self._wake_reader.fileno():
                    yield from self._connected()
                    continue
                number = self._number.get(descriptor)
                if number is not None and (result := self._receive(number, self._connections[number])) is not None:
                    yield number, result
            if not self._awaited or self._clock() >= until_s:
                break
        yield from self._timed_out(self._clock())
        self._awaited.clear()

    def close(self) -> None:
        for pool in (self._pool, self._late_pool):
            pool.shutdown(wait=False, cancel_futures=True)
        for connection in self._connections:
            self._drop(connection)
        for part in (self._epoll, self._wake_reader, self._wake_writer):
            part.close()

    def _send(self, connection: _ServerConnection) -> None:
        """Send on the open connection, or on a new one as soon as it is connected."""
        if connection.socket is not None:
            try:
                if connection.socket.send(connection.request) == len(connection.request):
                    return
            except OSError:
                pass  # the server has closed the connection; a full send buffer is treated the same
            self._drop(connection)
        if connection.connecting is None:
            pool = self._late_pool if connection.is_late else self._pool
            connection.connecting = pool.submit(connection.connect)
            connection.connecting.add_done_callback(self._wake)

    def _wake(self, connecting: Future[socket.socket]) -> None:
        with suppress(OSError):  # the sweep is closed
            self._wake_writer.send(b"!")

    def _connected(self) -> Iterator[tuple[int, SourceError]]:
        """Send the requests that waited for a connection."""
        self._wake_reader.recv(4096)
        for number in list(self._pending):
            connection = self._connections[number]
            if connection.connecting is None or not connection.connecting.done():
                continue
            try:
                connected, connection.connecting = connection.connecting.result(), None
            except (OSError, ValueError, SettingsError) as error:
                connection.connecting, connection.is_late = None, True
                reason = "no response" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or error
                yield number, self._failed(number, connection, str(reason))
                continue
            connection.socket, connection.is_new, connection.is_late = connected, True, False
            connection.deadline_s = self._clock() + connection.endpoint.deadline_s  # the request is sent only now
            self._number[connected.fileno()] = number
            self._epoll.register(connected, select.EPOLLIN)
            try:
                connected.send(connection.request)
            except OSError as error:
                yield number, self._failed(number, connection, str(error))

    def _receive(self, number: int, connection: _ServerConnection) -> bytes | SourceError | None:
        """Read from the socket: the body once it is complete, the failure, or None if more is to come."""
        ended = self._read(connection)
        if not connection.request:
            self._drop(connection)  # the server closed the connection, or sent something without a request
            return None
        if ended and not connection.received and not connection.is_new:
            # The server had closed an idle connection: that is not a failure. Connect again.
            self._drop(connection)
            self._send(connection)
            return None
        try:
            if len(connection.received) > connection.endpoint.most_bytes:
                raise ValueError(f"more than {connection.endpoint.most_bytes} bytes")
            share = MOST_HELD_BYTES // len(self._connections)  # a server with less than its share is not refused
            if self._held > MOST_HELD_BYTES and len(connection.received) > share:
                raise ValueError(f"all responses together have more than {MOST_HELD_BYTES} bytes")
            unpacked = unpack(connection.received, ended, connection.chunks)
        except ValueError as error:
            return self._failed(number, connection, str(error))
        if unpacked is None:
            return self._failed(number, connection, "the connection was closed inside a response") if ended else None
        status, body, stays_open = unpacked
        self._done(number, connection)
        connection.is_new = False
        if not stays_open:
            self._drop(connection)
        return body if status == 200 else SourceError(f"{connection.where}: HTTP {status}: {refused(body)}")

    def _read(self, connection: _ServerConnection) -> bool:
        """Read the available bytes; True if the connection has ended."""
        assert connection.socket is not None
        while True:
            try:
                size = connection.socket.recv_into(self._buffer)
            except (BlockingIOError, ssl.SSLWantReadError):
                return False
            except OSError:
                return True
            connection.received += memoryview(self._buffer)[:size]
            self._held += size
            if len(connection.received) > connection.endpoint.most_bytes:
                return False
            # epoll does not report bytes that TLS has already decrypted.
            if not size or not (isinstance(connection.socket, ssl.SSLSocket) and connection.socket.pending()):
                return not size

    def _timed_out(self, now_s: float) -> Iterator[tuple[int, SourceError]]:
        for number in [number for number in self._pending if self._connections[number].deadline_s < now_s]:
            connection = self._connections[number]
            yield number, self._failed(number, connection, f"no response within {connection.endpoint.deadline_s:g} s")

    def _failed(self, number: int, connection: _ServerConnection, reason: str) -> SourceError:
        self._done(number, connection)
        self._drop(connection)
        return SourceError(f"{connection.where}: {reason}")

    def _done(self, number: int, connection: _ServerConnection) -> None:
        self._pending.discard(number)
        self._awaited.discard(number)
        connection.request = b""
        self._forget(connection)

    def _forget(self, connection: _ServerConnection) -> None:
        self._held -= len(connection.received)
        connection.received.clear()
        connection.chunks.clear()

    def _drop(self, connection: _ServerConnection) -> None:
        if connection.connecting is not None:
            connection.is_late |= connection.connecting.running()  # such as a TLS handshake that never ends
            connection.connecting.add_done_callback(_close_unused)
            connection.connecting = None
        if connection.socket is not None:
            self._number.pop(connection.socket.fileno(), None)
            connection.socket.close()  # this also removes it from the epoll
            connection.socket = None


def _close_unused(connecting: Future[socket.socket]) -> None:
    """Close a connection that was established after its request was given up."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().close()
