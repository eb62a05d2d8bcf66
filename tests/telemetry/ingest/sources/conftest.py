"""A scripted server over a real socket."""

from __future__ import annotations

import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from tests.http_answers import Handler, answering
from tests.servers import binary

Answer = Callable[[Handler], None]


class Script:
    """What the server does with each request: the next of `answers`, the last one again and again."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: list[Answer] = []
        self.requests: list[tuple[str, Any]] = []  # path with its query, headers

    def say(self, body: bytes | str, status: int = 200) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.answers.append(lambda request: request.send(data, status))


@pytest.fixture
def server() -> Iterator[Script]:
    script = Script()

    class Scripted(Handler):
        def do_GET(self) -> None:
            script.requests.append((self.path, self.headers))
            answer = script.answers.pop(0) if len(script.answers) > 1 else script.answers[0]
            answer(self)

    with answering(Scripted) as address:
        script.url = f"http://{address}"
        yield script


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A server with TLS, its address, and the certificate that it serves as /cert.pem and is its own authority."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    make = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
    command = [binary("openssl"), *make, "-keyout", str(key), "-out", str(certificate), *subject]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), lambda *a: Quiet(*a, directory=str(tmp_path)))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}", certificate
    server.shutdown()
    server.server_close()
    thread.join()
