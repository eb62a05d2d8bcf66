"""Connections of clients that nobody has checked yet: a listening socket -> few connections, each with deadlines.

A client has `HEAD_S` for the TLS handshake and the head of a request, `BODY_S` for its body, and `WRITE_S` to take the
next piece of an answer. The number of connections is limited far below the number of file descriptors, so that the
database, the recording and the source keep theirs. At the limit, a new client replaces the one that matters least: a
client that has asked for nothing yet, else one between two requests, else the oldest stream. A page opens its stream
again by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource
import select
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0
BODY_S = 30.0
WRITE_S = 30.0
MAX_HEAD_BYTES = 32_768
MOST_CONNECTIONS = 512
RESERVE = 4  # connections may use one part in this many of the file descriptors
REPEAT_S = 60.0  # the same line is logged once in this time
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
#: How much a connection matters. The lowest is replaced first.
SILENT, IDLE, BUSY = range(3)


def most_connections() -> int:
    """Raise the limit of file descriptors as far as it goes, and reserve most of them for the service itself."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(8, min(MOST_CONNECTIONS, soft // RESERVE))


class ClientConnection:
    """A connection from its acceptance on, also during the TLS handshake, when there is no protocol yet."""

    def __init__(self, sock: socket.socket, address: str) -> None:
        self.socket, self.address, self.since_s = sock, address, time.monotonic()
        self.matters = SILENT
        self.transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.expect(HEAD_S)

    @property
    def is_open(self) -> bool:
        return self.socket.fileno() != -1

    def expect(self, seconds: float | None) -> None:
        """End the connection after this time, unless this is called again. None: no deadline."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.end) if seconds is not None else None

    def end(self) -> None:
        """Close at once, even if the client neither reads nor writes."""
        self.expect(None)
        if self.transport is not None:
            self.transport.abort()
        elif self.is_open:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self.socket, socket.SHUT_RDWR)  # a handshake then reads an end of file


class BoundedListener(socket.socket):
    """A listening socket for asyncio, which accepts as many clients as wait and logs each failure."""

    most = MOST_CONNECTIONS

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._clients: dict[int, ClientConnection] = {}  # by file descriptor
        self._spare = os.open(os.devnull, os.O_RDONLY)

    def accept(self) -> tuple[socket.socket, Any]:
        """The next client. asyncio asks again after BlockingIOError, when ended connections have been closed."""
        if len(self._open_clients()) >= self.most:
            if self._is_asked():
                self._end_least()
            raise BlockingIOError
        try:
            sock, address = super().accept()
        except OSError as error:
            if error.errno not in _NO_DESCRIPTOR:
                raise
            if not self._end_least():
                self._refuse_one()
            raise BlockingIOError from error
        self._clients[sock.fileno()] = ClientConnection(sock, str(address[0]))
        return sock, address

    def client(self, descriptor: int) -> ClientConnection | None:
        return self._clients.get(descriptor)

    def close(self) -> None:
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        super().close()

    def _is_asked(self) -> bool:
        """Whether a client waits to be accepted. asyncio also asks when none does."""
        poll = select.poll()
        poll.register(self, select.POLLIN)
        return bool(poll.poll(0))

    def _open_clients(self) -> list[ClientConnection]:
        closed = [number for number, client in self._clients.items() if not client.is_open]
        for number in closed:
            self._clients.pop(number).expect(None)
        return list(self._clients.values())

    def _end_least(self) -> bool:
        """End the connection that matters least: of the address with the most connections, the oldest.

        If it is silent, end other silent ones with it: in a flood, one for each turn of the event loop is too few.
        """
        clients = self._open_clients()
        count = Counter(client.address for client in clients)
        clients.sort(key=lambda client: (client.matters, -count[client.address], client.since_s))
        silent = [client for client in clients if client.matters == SILENT]
        for client in silent[: max(1, self.most // 8)] or clients[:1]:
            client.end()
        return bool(clients)

    def _refuse_one(self) -> None:
        """Use the spare descriptor to disconnect the next client: no other is free, and no connection can be ended."""
        os.close(self._spare)
        with contextlib.suppress(OSError):
            super().accept()[0].close()
        self._spare = os.open(os.devnull, os.O_RDONLY)


def bounded_protocol(listener: BoundedListener) -> type[H11Protocol]:
    """uvicorn's HTTP/1.1 protocol, with the deadlines of the listener's connections."""

    class BoundedProtocol(H11Protocol):
        _client: ClientConnection | None = None
        _phase: object = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._client = listener.client(transport.get_extra_info("socket").fileno())
            if self._client is not None:
                self._client.transport = transport

        def connection_lost(self, exc: Exception | None) -> None:
            if self._client is not None:
                self._client.expect(None)
                self._client = None
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._set_deadline()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._set_deadline()

        def pause_writing(self) -> None:
            super().pause_writing()
            if self._client is not None:
                self._client.expect(WRITE_S)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._phase = None
            self._set_deadline()

        def _set_deadline(self) -> None:
            """One deadline for each part of a request, however slowly its bytes arrive."""
            phase = self.conn.their_state
            # An answer is complete for uvicorn before the client has read it. Until then `WRITE_S` applies.
            if self._client is None or phase is self._phase or self.flow.write_paused:
                return
            self._phase = phase
            has_asked = self.cycle is not None
            if phase is h11.IDLE:
                self._client.matters = IDLE if has_asked else SILENT
                self._client.expect(HEAD_S)
            elif phase is h11.SEND_BODY:
                self._client.matters = SILENT
                self._client.expect(BODY_S)
            else:
                self._client.matters = BUSY
                self._client.expect(None)

    return BoundedProtocol


class RepeatFilter(logging.Filter):
    """Lets a line through once in `REPEAT_S`, with the number of lines that it left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._last: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
        key, now_s = (str(record.msg)[:200], kind), self._clock()
        logged_s, left_out = self._last.get(key, (float("-inf"), 0))
        if now_s - logged_s < REPEAT_S:
            self._last[key] = logged_s, left_out + 1
            return False
        if len(self._last) > 1000:
            self._last.clear()
        self._last[key] = now_s, 0
        if left_out:
            record.msg = f"{record.getMessage()} (and {left_out} more in the last minutes)"
            record.args = None
        return True


def limit_logs() -> None:
    """Limit what clients can make the server and asyncio log."""
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addFilter(RepeatFilter())
    # It logs a line for each form that it cannot read, with bytes of the client. The client is told too.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
