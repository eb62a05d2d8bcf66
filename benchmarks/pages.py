"""Pages with 10,000 open events (simulated): the time until the server answers, and until a browser has loaded them.

python benchmarks/pages.py [EVENTS]
"""

from __future__ import annotations

import socket
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import httpx
import uvicorn

from clustertwin.service.application import create_app
from clustertwin.service.live.snapshot import ModelState, ServiceState, nothing_yet
from clustertwin.service.store.event_store import Store
from clustertwin.telemetry.detection.events.event import Event
from clustertwin.telemetry.detection.events.explanation import Explanation, Ratio

ROUNDS = 7
PATHS = ("/", "/events", "/events?page=100", "/events?node=n42", "/events/00042")
CHROMIUM = "/usr/bin/chromium"


def full_state(home: Path, n: int) -> ServiceState:
    """`n` open events on a thousand nodes, in the store and in the snapshot."""
    why = Explanation("reconstruction", 900, 1000, 80, 2, 2, "node", (Ratio("iowait", 0.7, 0.02, None),))
    events = tuple(
        Event(f"{i:05}", ((f"n{i % 1000}", (0, 1)),), (f"{i}",), "ada", 1000 + i, 1100 + i, None, 4.5, why.view, "ae")
        for i in range(n)
    )
    state = ServiceState(home, Store(home / "state.sqlite"))
    state.store.write((event, why) for event in events)
    model = ModelState("ae", "ae", "bundled", 3.0, 1e-3, ("reconstruction",), 0.0)
    state.publish(replace(nothing_yet("benchmark"), phase="watching", events=events, model=model, now_s=20_000.0), None)
    return state


def answered_ms(url: str) -> list[float]:
    times = []
    for _ in range(ROUNDS):
        begun_s = time.perf_counter()
        httpx.get(url).raise_for_status()
        times.append(1e3 * (time.perf_counter() - begun_s))
    return times


def loaded_ms(url: str) -> list[float]:
    """The load time that the browser measures; empty without a browser."""
    if not Path(CHROMIUM).exists():
        return []
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        times = []
        for _ in range(ROUNDS):
            page.goto(url, wait_until="load")
            times.append(page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
        browser.close()
    return times


def _cell(times: list[float]) -> str:
    return f"{statistics.median(times):.0f} ({max(times):.0f})" if times else "–"


def main(n: int) -> None:
    with tempfile.TemporaryDirectory() as home, socket.socket() as listener:
        state = full_state(Path(home), n)
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(create_app(state), log_level="error", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.05)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        print(f"{n:,} open events, {ROUNDS} rounds: median (worst), ms")
        print(f"{'page':<20} {'answered':>16} {'loaded in Chromium':>20}")
        for path in PATHS:
            cells = [_cell(answered_ms(url + path)), _cell(loaded_ms(url + path))]
            print(f"{path:<20} {cells[0]:>16} {cells[1]:>20}")
        server.should_exit = True
        thread.join()
        state.store.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
