"""A node for `chaos.py`: kernel files that this program writes, and a proxy before its exporter that can misbehave."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_PORTS = itertools.islice(itertools.cycle(range(10_000, 20_000)), os.getpid() * 37 % 10_000, None)


def free_port() -> int:
    """A port below those that the system hands out: while a service is down, no connection takes its port."""
    for port in _PORTS:
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise AssertionError("the cycle has no end")


class Kernel(threading.Thread):
    """/proc/stat of a node with idle threads, written ten times a second. `iowait_ratio` lets them wait for I/O."""

    def __init__(self, root: Path) -> None:
        super().__init__(daemon=True)
        self.root, self.cpus, self.offset_s, self.is_broken = root, 4, 1000.0, False
        self.iowait_ratio, self._iowait, self._last = 0.0, 0.0, 0
        self._begun_s, self._stopped = time.monotonic(), threading.Event()
        (root / "proc").mkdir(parents=True)
        self.write()

    def write(self) -> None:
        ticks = round((time.monotonic() - self._begun_s + self.offset_s) * 100)
        self._iowait += self.iowait_ratio * max(ticks - self._last, 0)
        self._last, waited = ticks, int(self._iowait)
        idle = ticks - ticks // 50 - ticks // 100 - waited
        lines = [f"cpu{cpu} {ticks // 50} 0 {ticks // 100} {idle} {waited} 0 0 0 0 0" for cpu in range(self.cpus)]
        text = "" if self.is_broken else "cpu  0 0 0 0 0 0 0 0 0 0\n" + "\n".join(lines) + "\nbtime 1731700000\n"
        draft = self.root / "proc/.stat"
        draft.write_text(text)
        draft.rename(self.root / "proc/stat")

    def run(self) -> None:
        while not self._stopped.wait(0.1):
            self.write()

    def stop(self) -> None:
        self._stopped.set()
        self.join()


class Proxy(threading.Thread):
    """Passes bytes to an exporter, or misbehaves. A new mode ends all connections."""

    def __init__(self, target: int) -> None:
        super().__init__(daemon=True)
        self.mode: Callable[[bytes], bytes | None] | str = "pass"
        self.ahead_s = 0.0  # of the clock of the node behind
        self._target, self._open = target, set[socket.socket]()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])

    def set(self, mode: Callable[[bytes], bytes | None] | str) -> None:
        self.mode = mode
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        self._open.add(connection)
        try:
            with connection:
                while request := connection.recv(65536):
                    self._answer(connection, request)
        except OSError:
            pass
        finally:
            self._open.discard(connection)

    def _answer(self, connection: socket.socket, request: bytes) -> None:
        mode = self.mode
        if mode == "refuse":
            connection.close()
        elif mode == "silent":
            time.sleep(3600)
        elif mode == "endless":
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while self.mode == mode:
                connection.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        else:
            answer = self._ask(request)
            if mode == "slow":
                for byte in answer:
                    connection.sendall(bytes([byte]))
                    time.sleep(0.05)
            elif mode == "half":
                connection.sendall(answer[: len(answer) // 2])
                connection.close()
            else:
                changed = mode(answer) if callable(mode) else answer
                if changed is not None:
                    connection.sendall(changed)

    def _ask(self, request: bytes) -> bytes:
        """The whole answer of the exporter, with a length instead of chunks."""
        path, _, since = request.split(b" ")[1].decode().partition("?since=")
        if since:
            path += f"?since={float(since) - self.ahead_s}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._target}{path}", timeout=5) as answer:
                status, body = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, body = error.code, error.read()
        return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body


def with_body(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    def apply(answer: bytes) -> bytes:
        body = change(answer.partition(b"\r\n\r\n")[2])
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    return apply


def shift_times(by_s: float) -> Callable[[bytes], bytes]:
    def change(body: bytes) -> bytes:
        lines = body.split(b"\n")
        return b"\n".join(b"t %.3f" % (float(line[2:]) + by_s) if line[:2] == b"t " else line for line in lines)

    return change


def many_cpus(body: bytes) -> bytes:
    """Ten thousand more threads in every block."""
    more = b"".join(b"cpu%d 5 0 0 100 0 0 0 0 0 0\n" % cpu for cpu in range(100, 10_100))
    return b"".join(line + b"\n" + (more if line.startswith(b"cpu0 ") else b"") for line in body.split(b"\n"))
