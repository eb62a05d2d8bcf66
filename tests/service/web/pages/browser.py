"""A real browser and a real HTTP server for tests: an app -> its URL; headless Chromium, or a skip with a reason."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvicorn
from fastapi import FastAPI

READY_S = 120.0
QUIET = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-sync"


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """Serve the app on a free loopback port, in a thread."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    give_up_s = time.monotonic() + READY_S
    while not server.started and time.monotonic() < give_up_s:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(READY_S)
    listener.close()


@contextmanager
def chromium() -> Iterator[object]:
    """Start a browser."""
    playwright = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as play:
        started = play.chromium.launch(executable_path=program, args=QUIET.split())
        yield started
        started.close()
