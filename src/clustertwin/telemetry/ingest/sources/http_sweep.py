"""Ask many servers at once from one thread: questions out -> bodies as they come, each within its deadline.

A thread and a client for each of a thousand nodes would spend more on changing hands than on reading. Here one thread
waits for all sockets together, and connections are kept. Only to connect, which may take its time over a name or a
handshake, is left to a few threads beside.
"""

from __future__ import annotations

import base64
import re
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import urlencode, urlsplit

from clustertwin.core.errors import SettingsError, SourceError
from clustertwin.telemetry.ingest.sources.http import Endpoint, refused, trust

_CONNECTORS = 16
_MOST_HEAD_BYTES = 64 << 10
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[ \r]")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,15})[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*\r\n", re.IGNORECASE)
_CLOSES = re.compile(rb"\r\nconnection:[ \t]*close[ \t]*\r\n", re.IGNORECASE)


def unpack(answer: bytearray, ended: bool) -> tuple[int, bytes, bool] | None:
    """The bytes of an answer so far -> status, body, and whether the connection goes on; None while it is not whole.

    `ended` says that nothing more will come. ValueError for what is no HTTP/1.
    """
    end = answer.find(b"\r\n\r\n")
    if end < 0:
        if len(answer) > _MOST_HEAD_BYTES:
            raise ValueError("an answer without an end to its head")
        return None
    head, body_at = answer[: end + 2], end + 4
    status = _STATUS.match(head)
    if status is None:
        raise ValueError(f"no answer of HTTP/1: {bytes(head[:60])!r}")
    goes_on = not ended and _CLOSES.search(head) is None
    if _CHUNKED.search(head):
        body = _joined(answer, body_at)
        return None if body is None else (int(status[1]), body, goes_on)
    length = _LENGTH.search(head)
    if length is None:  # all that comes until the connection ends
        return (int(status[1]), bytes(answer[body_at:]), False) if ended else None
    if len(answer) - body_at < int(length[1]):
        return None
    return int(status[1]), bytes(answer[body_at : body_at + int(length[1])]), goes_on


def _joined(answer: bytearray, at: int) -> bytes | None:
    """The chunks from `at` on, without their frames; None while the last is missing."""
    if not answer.endswith(b"0\r\n\r\n"):
        return None
    parts: list[bytearray] = []
    while True:
        line_end = answer.find(b"\r\n", at)
        if line_end < 0:
            return None
        size = int(answer[at:line_end].partition(b";")[0], 16)
        if size == 0:
            return b"".join(parts)
        at = line_end + 2 + size + 2
        if at > len(answer):
            return None
        parts.append(answer[line_end + 2 : at - 2])


class _Line:
    """The connection to one server, and the question that is in flight on it, if one is."""

    def __init__(self, endpoint: Endpoint) -> None:
        parts = urlsplit(endpoint.url)
        self.endpoint, self.base = endpoint, endpoint.url.rstrip("/")
        self.host, self.port = endpoint.host, parts.port or (443 if parts.scheme == "https" else 80)
        self._path = parts.path.rstrip("/")
        self._headers = f"Host: {parts.netloc}\r\n{_authorization(endpoint)}"
        self.socket: socket.socket | None = None
        self.connecting: Future[socket.socket] | None = None
        self.where, self.request = "", b""  # an empty request: nothing is in flight
        self.got = bytearray()
        self.deadline_s = 0.0
        self.fresh = False  # nothing was answered on this connection yet

    def ask(self, path: str, params: Mapping[str, str], accept: str, now_s: float) -> None:
        query = f"?{urlencode(params)}" if params else ""
        self.where = self.base + path
        self.request = f"GET {self._path}{path}{query} HTTP/1.1\r\n{self._headers}Accept: {accept}\r\n\r\n".encode()
        self.deadline_s = now_s + self.endpoint.deadline_s
        self.got.clear()

    def connect(self) -> socket.socket:
        """May block; for a thread beside."""
        made = socket.create_connection((self.host, self.port), self.endpoint.deadline_s)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context := trust(self.endpoint):
                made = context.wrap_socket(made, server_hostname=self.host)
            made.setblocking(False)
        except BaseException:
            made.close()
            raise
        return made


def _authorization(endpoint: Endpoint) -> str:
    if endpoint.bearer_token:
        return f"Authorization: Bearer {endpoint.bearer_token}\r\n"
    if endpoint.username:
        pair = base64.b64encode(f"{endpoint.username}:{endpoint.password}".encode()).decode()
        return f"Authorization: Basic {pair}\r\n"
    return ""


class Sweep:
    """Servers by their number, one question at a time at each."""

    def __init__(self, endpoints: Sequence[Endpoint], clock: Callable[[], float] = time.monotonic) -> None:
        self._lines = [_Line(endpoint) for endpoint in endpoints]
        self._clock = clock
        self._asked: set[int] = set()
        self._awaited: set[int] = set()  # asked since the last round of answers
        self._number: dict[int, int] = {}  # file descriptor -> server
        self._epoll = select.epoll()
        self._bell, self._button = socket.socketpair()  # who has connected rings
        self._bell.setblocking(False)
        self._epoll.register(self._bell, select.EPOLLIN)
        self._pool = ThreadPoolExecutor(_CONNECTORS, "connect")
        self._room = bytearray(1 << 18)

    @property
    def asked(self) -> frozenset[int]:
        """Who has not answered yet."""
        return frozenset(self._asked)

    def ask(self, number: int, path: str, params: Mapping[str, str], accept: str = "*/*") -> None:
        """Begin to ask; `answers` gives what comes of it."""
        line = self._lines[number]
        line.ask(path, params, accept, self._clock())
        self._asked.add(number)
        self._awaited.add(number)
        self._send(number, line)

    def answers(self, within_s: float) -> Iterator[tuple[int, bytes | SourceError]]:
        """Bodies and failures as they come, for so long, or until nobody is left whom this round has asked.

        Whoever is given may be asked again at once. Who is later than the round is not waited for in the next.
        """
        until_s = self._clock() + within_s
        while True:
            wait_s = max(until_s - self._clock(), 0.0) if self._awaited else 0.0
            for descriptor, _ in self._epoll.poll(wait_s):
                if descriptor == self._bell.fileno():
                    yield from self._connected()
                    continue
                number = self._number.get(descriptor)
                if number is not None and (answer := self._receive(number, self._lines[number])) is not None:
                    yield number, answer
            if not self._awaited or self._clock() >= until_s:
                break
        yield from self._too_late(self._clock())
        self._awaited.clear()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for line in self._lines:
            self._drop(line)
        for part in (self._epoll, self._bell, self._button):
            part.close()

    def _send(self, number: int, line: _Line) -> None:
        """On the connection that there is, or on a new one as soon as it is made."""
        if line.socket is not None:
            try:
                if line.socket.send(line.request) == len(line.request):
                    return
            except OSError:
                pass  # the server has left since; a full buffer is as good as gone
            self._drop(line)
        if line.connecting is None:
            line.connecting = self._pool.submit(line.connect)
            line.connecting.add_done_callback(self._ring)

    def _ring(self, connecting: Future[socket.socket]) -> None:
        with suppress(OSError):  # nobody listens any more
            self._button.send(b"!")

    def _connected(self) -> Iterator[tuple[int, SourceError]]:
        """Send what waited for a connection."""
        self._bell.recv(4096)
        for number in list(self._asked):
            line = self._lines[number]
            if line.connecting is None or not line.connecting.done():
                continue
            try:
                made, line.connecting = line.connecting.result(), None
            except (OSError, ValueError, SettingsError) as error:
                line.connecting = None
                reason = "no answer" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or error
                yield number, self._failed(number, line, str(reason))
                continue
            line.socket, line.fresh = made, True
            line.deadline_s = self._clock() + line.endpoint.deadline_s  # it is asked only now
            self._number[made.fileno()] = number
            self._epoll.register(made, select.EPOLLIN)
            try:
                made.send(line.request)
            except OSError as error:
                yield number, self._failed(number, line, str(error))

    def _receive(self, number: int, line: _Line) -> bytes | SourceError | None:
        """Take in what has come; the body once it is whole, or what went wrong."""
        ended = self._take_in(line)
        if not line.request:
            self._drop(line)  # the server left, or speaks without having been asked
            return None
        if ended and not line.got and not line.fresh:
            # It had left before it was asked: that is no failure, only an old connection.
            self._drop(line)
            self._send(number, line)
            return None
        try:
            if len(line.got) > line.endpoint.most_bytes:
                raise ValueError(f"more than {line.endpoint.most_bytes} bytes")
            found = unpack(line.got, ended)
        except ValueError as error:
            return self._failed(number, line, str(error))
        if found is None:
            return self._failed(number, line, "hung up in the middle of its answer") if ended else None
        status, body, goes_on = found
        self._done(number, line)
        line.fresh = False
        if not goes_on:
            self._drop(line)
        return body if status == 200 else SourceError(f"{line.where}: HTTP {status}: {refused(body)}")

    def _take_in(self, line: _Line) -> bool:
        """What has come; whether nothing more will."""
        assert line.socket is not None
        while True:
            try:
                size = line.socket.recv_into(self._room)
            except (BlockingIOError, ssl.SSLWantReadError):
                return False
            except OSError:
                return True
            line.got += memoryview(self._room)[:size]
            # What TLS has decrypted beyond our room the kernel does not tell of.
            if not size or not (isinstance(line.socket, ssl.SSLSocket) and line.socket.pending()):
                return not size

    def _too_late(self, now_s: float) -> Iterator[tuple[int, SourceError]]:
        for number in [number for number in self._asked if self._lines[number].deadline_s < now_s]:
            line = self._lines[number]
            yield number, self._failed(number, line, f"no answer within {line.endpoint.deadline_s:g} s")

    def _failed(self, number: int, line: _Line, reason: str) -> SourceError:
        self._done(number, line)
        self._drop(line)
        return SourceError(f"{line.where}: {reason}")

    def _done(self, number: int, line: _Line) -> None:
        self._asked.discard(number)
        self._awaited.discard(number)
        line.request = b""
        line.got.clear()

    def _drop(self, line: _Line) -> None:
        if line.connecting is not None:
            line.connecting.add_done_callback(_hang_up)
            line.connecting = None
        if line.socket is not None:
            self._number.pop(line.socket.fileno(), None)
            line.socket.close()  # which takes it out of the epoll too
            line.socket = None


def _hang_up(connecting: Future[socket.socket]) -> None:
    """A connection that came too late for whoever wanted it."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().close()
