"""End a request of httpx at its deadline: the socket of the request is shut down from a timer.

The timeouts of httpx begin anew with each byte, also in the head of an answer, which nobody counts. A server that sends
one byte a second would hold its caller for a day.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

_CONNECTED = tuple(f"connection.{how}.complete" for how in ("connect_tcp", "connect_unix_socket", "start_tls"))


class SocketDeadline:
    """Pass `extensions` with a request, and make it within `within`. A connection that is used again is known."""

    def __init__(self) -> None:
        self.has_passed = False
        self._socket: socket.socket | None = None

    @property
    def extensions(self) -> dict[str, Any]:
        return {"trace": self._trace}

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        self.has_passed = False
        timer = threading.Timer(seconds, self._end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _trace(self, event: str, details: Mapping[str, Any]) -> None:
        if event in _CONNECTED:
            self._socket = details["return_value"].get_extra_info("socket")

    def _end(self) -> None:
        self.has_passed = True
        if self._socket is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # of TLS too, without its farewell
