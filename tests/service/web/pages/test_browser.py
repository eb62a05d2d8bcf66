"""The pages in a real browser, over real HTTP with the real headers: what a user sees, clicks and types."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.service import sample_state
from tests.service.conftest import Clock, ready
from tests.service.web.pages.browser import chromium, serving

from clustertwin.service.application import create_app
from clustertwin.service.live.feeds.live_feed import LiveFeed
from clustertwin.service.live.feeds.replay_feed import ReplayFeed
from clustertwin.service.live.loop import Loop
from clustertwin.service.live.loop_settings import LoopSettings
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.store.event_store import Filter, Store
from clustertwin.service.store.quiet_periods import MaintenanceWindow, Silence
from clustertwin.service.store.tokens import Tokens
from clustertwin.telemetry.ingest.sources.local_host import Host
from clustertwin.telemetry.learning.champions.handover import Handover
from clustertwin.telemetry.recording import Recording
from clustertwin.telemetry.recording.trace_archive import GrowingRecordingArchive

pytestmark = [pytest.mark.real, pytest.mark.slow]

HOSTILE = "<img src=x onerror='window.pwned=1'>\"><script>window.pwned=1</script>"


#: Points at the newest cell of a thread and reads the tooltip.
NEWEST_CELL_IS_BUSY = """(cpu) => {
  const canvas = document.querySelector('#node canvas'), box = canvas.getBoundingClientRect();
  for (let y = box.top + 1; y < box.bottom; y += 2) {
    canvas.dispatchEvent(new MouseEvent('mousemove', { clientX: box.right - 2, clientY: y }));
    const text = document.querySelector('#node .tip').textContent;
    if (text.startsWith(`cpu${cpu} `)) return / (9[0-9]|100) %/.test(text);
  }
  return false;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages. An error in the browser, including a blocked script, fails the test."""
    contexts, complaints = [], []

    def open_(url: str, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": 1366, "height": 820}, color_scheme=scheme, locale="en-GB")
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)  # a busy machine must not fail the test
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(url)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []


def settled(page: Any, block: str) -> None:
    """Wait until HTMX has processed a block that it has replaced; before, its buttons do nothing."""
    page.locator(f"{block} time[data-done]").first.wait_for()


def until(page: Any, expression: str, arg: Any = None) -> None:
    """Wait until the expression is true in the page. Playwright's own function uses `eval`, which our pages forbid."""
    give_up_s = time.monotonic() + 60
    while not page.evaluate(expression, arg):
        assert time.monotonic() < give_up_s, expression
        page.wait_for_timeout(50)


class Watched:
    """A replayed campaign of bad I/O, served; the test sets its clock."""

    def __init__(self, url: str, recording: Recording, loop: Loop, clock: Clock) -> None:
        self.url, self.recording, self.loop, self.clock, self.store = url, recording, loop, clock, loop.state.store

    def advance(self, seconds: int, step_s: int = 10) -> None:
        for _ in range(0, seconds, step_s):
            self.clock.now_s += step_s
            self.loop.turn()


@pytest.fixture(scope="module")
def watched(bad_io: Recording, detector: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    home = tmp_path_factory.mktemp("home")
    state, clock = ServiceState(home, Store(home / "state.sqlite")), Clock()
    state.past = GrowingRecordingArchive(bad_io.directory)
    champion = ready(Handover(home, detector))
    # The loop's own clock stands still, so scoring takes no time, even on a busy machine.
    loop = Loop(state, ReplayFeed(bad_io, 1.0, clock), champion, LoopSettings(stride_s=10), clock=lambda: 0.0)
    loop.turn()
    with serving(create_app(state)) as url:
        yield Watched(url, bad_io, loop, clock)
    state.store.close()


def test_bad_io_becomes_an_event_that_names_iowait_and_is_confirmed_and_undone(
    watched: Watched, open_page: Any
) -> None:
    page = open_page(watched.url)
    page.get_by_text("Not scored yet").first.wait_for()
    while not watched.loop.state.snapshot.events:
        watched.advance(10)
        assert watched.clock.now_s < 1500, "no event in 25 minutes of bad I/O"
    first = watched.loop.state.snapshot.events[0]
    onset_s = min(span.start_s for span in watched.recording.spans if span.job in first.jobs)
    # A change must hold before it opens an event; scores alone opened it within 120 s, and also for healthy new jobs.
    assert watched.recording.start_s + watched.clock.now_s - onset_s <= 200
    page.locator("#newest tbody tr a").first.click()
    page.locator("blockquote.why").wait_for()
    assert "iowait" in page.locator("table.compare").inner_text()
    shown = page.locator("#event").get_attribute("data-id")
    page.get_by_label("comment").fill("disk 3")
    page.get_by_role("button", name="Confirm").click()
    page.locator("#verdict .pill[data-state=confirmed]").wait_for()
    settled(page, "#verdict")
    assert (watched.store.event(shown).verdict, watched.store.event(shown).comment) == ("confirmed", "disk 3")
    page.keyboard.press("u")
    page.locator("#verdict .pill[data-state=confirmed]").wait_for(state="detached")
    assert watched.store.event(shown).verdict == ""


def test_the_heat_map_moves_and_a_thread_has_its_reconstruction(watched: Watched, open_page: Any) -> None:
    watched.advance(max(400 - int(watched.clock.now_s), 0))
    node = watched.loop.state.snapshot.nodes[0].node
    page = open_page(f"{watched.url}/nodes/{node}")
    until(page, "document.getElementById('node')?.dataset.end > 0 && document.querySelectorAll('.u-over').length === 4")
    until(
        page,
        "[...document.querySelectorAll('.plot')].every((p) => p.querySelector('.uplot').offsetWidth === p.clientWidth)",
    )
    canvas = page.locator("#node canvas")
    before, drawn = page.locator("#node").get_attribute("data-end"), canvas.evaluate("c => c.toDataURL()")
    watched.advance(20)
    until(page, f"document.getElementById('node').dataset.end >= {int(before) + 20}")
    assert canvas.evaluate("c => c.toDataURL()") != drawn
    canvas.hover(position={"x": 600, "y": 5})
    assert page.locator("#node .tip").inner_text().startswith("cpu0")
    page.get_by_role("button", name="iowait").click()
    until(page, "document.querySelector('[data-channel=iowait]').getAttribute('aria-pressed') === 'true'")


def test_keys_give_all_marked_rows_a_verdict(watched: Watched, open_page: Any) -> None:
    watched.store.write([(replace(sample_state.EVENT, id=f"k{i}"), sample_state.WHY) for i in range(3)])
    page = open_page(f"{watched.url}/events?job=17")
    for key in ("j", "x", "j", "x"):
        page.keyboard.press(key)
    page.keyboard.press("d")
    page.get_by_text("2 events dismissed").wait_for()
    settled(page, "#listing")
    assert sorted(watched.store.event(f"k{i}").verdict for i in range(3)) == ["", "dismissed", "dismissed"]
    page.keyboard.press("u")
    page.get_by_text("2 events undone").wait_for()
    assert {watched.store.event(f"k{i}").verdict for i in range(3)} == {""}


def test_this_host_is_shown_live_before_the_first_score_and_load_appears(tmp_path: Path, open_page: Any) -> None:
    state = ServiceState(tmp_path, Store(tmp_path / "state.sqlite"))
    loop, stop = Loop(state, LiveFeed("this host", [("here", Host(node="here"))]), Future()), threading.Event()
    thread = threading.Thread(target=loop.run, args=(stop,))
    thread.start()
    cpu = max(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"
    load = subprocess.Popen([sys.executable, "-c", spin])
    try:
        with serving(create_app(state)) as url:
            page = open_page(url)
            page.get_by_role("heading", name="Warming up").wait_for()
            page.locator("#nodes").get_by_role(
                "link", name="here", exact=True
            ).wait_for()  # it appears after the second reading
            page.goto(f"{url}/nodes/here?cpu={cpu}")
            until(page, "document.getElementById('node')?.dataset.end > 0")
            until(page, NEWEST_CELL_IS_BUSY, cpu)
            page.close()  # before its server stops
    finally:
        load.kill()
        load.wait()
        stop.set()
        thread.join()
        state.store.close()


def test_no_script_runs_from_a_hostile_name(tmp_path: Path, open_page: Any) -> None:
    state = sample_state.state(tmp_path)
    now, event = (
        sample_state.snapshot(),
        replace(sample_state.EVENT, id="h", jobs=(HOSTILE,), owner=HOSTILE, places=((HOSTILE, (0,)),)),
    )
    state.store.write([(event, sample_state.WHY)])
    state.store.vet(["h"], "dismissed", who=HOSTILE, comment=HOSTILE, now_s=1.0)
    state.store.quiet_periods.add_silence(
        Silence(sample_state.NOW_S + 60, HOSTILE, HOSTILE, reason=HOSTILE, who=HOSTILE), sample_state.NOW_S
    )
    moment = replace(now.moment, nodes=(HOSTILE, "n2"), jobs=(HOSTILE,), job=now.moment.job * 0)
    job = replace(now.jobs[0], job=HOSTILE, owner=HOSTILE, job_type=HOSTILE)
    state.publish(
        replace(now, moment=moment, scored=moment, jobs=(job,), events=(event,), problems=(HOSTILE,), source=HOSTILE,
                nodes=(replace(now.nodes[0], node=HOSTILE),)),
        None,
    )  # fmt: skip
    with serving(create_app(state)) as url:
        page = open_page(url)
        for path in ("/", "/events?status=all", "/events/h", "/jobs", "/embedding", "/models", "/quiet", "/audit"):
            page.goto(url + path)
            page.wait_for_load_state("load")
            page.wait_for_timeout(300)
            assert page.evaluate("window.pwned") is None, path
            assert page.locator("img").count() == 0, path
        page.goto(url)
        page.locator("#nodes tbody a").first.click()
        until(page, "document.getElementById('node')?.dataset.end > 0")
        page.locator("#node canvas").hover(position={"x": 300, "y": 5})
        assert HOSTILE in page.locator("#node .tip").inner_text()
        assert page.evaluate("window.pwned") is None
        page.close()
    state.store.close()


def test_the_page_of_a_job_that_ends_keeps_its_last_state(tmp_path: Path, browser: Any) -> None:
    state, now = sample_state.state(tmp_path), sample_state.snapshot()
    moment = replace(now.moment, jobs=("99",), job=np.array([0, 0, -1, -1], np.int32))
    state.publish(replace(now, moment=moment, jobs=(replace(now.jobs[0], job="99"),)), None)
    with serving(create_app(state)) as url:
        page = browser.new_page()  # not `open_page`: the browser reports the 404
        page.goto(f"{url}/jobs/99")
        page.locator("#phase[data-state=watching]").wait_for()
        state.publish(replace(now, number=8, jobs=()), None)
        page.get_by_text("the page shows its last state").wait_for()
        assert page.locator("header.bar").count() == 1
        assert page.locator("#report").inner_text().startswith("job 99")
        page.close()
    state.store.close()


def test_an_event_that_left_memory_is_drawn_from_the_recording(watched: Watched, open_page: Any) -> None:
    while not watched.store.count(Filter(open=False)):
        watched.advance(100)
        assert watched.recording.start_s + watched.clock.now_s < watched.recording.end_s + 900, "no event ended"
    case = watched.store.events(Filter(open=False), 1)[0]
    watched.advance(max(case.event.onset_s + 400 - int(watched.loop.state.snapshot.now_s), 0))
    page = open_page(f"{watched.url}/events/{case.id}")
    page.get_by_text("from the recording").wait_for()
    assert page.locator("#event canvas").is_visible()


def test_a_browser_logs_in_acts_within_its_role_and_logs_out(tmp_path: Path, open_page: Any) -> None:
    state = sample_state.state(tmp_path)
    token = Tokens(state.store.database).add("ada", "vet", 0.0)
    with serving(create_app(state)) as url:
        page = open_page(f"{url}/events/e1")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(f"{url}/events/e1", wait_until="load")  # HTMX handles the form only after loading
        page.get_by_role("button", name="Dismiss").click()
        page.locator("#verdict .pill[data-state=dismissed]").wait_for()
        assert state.store.event("e1").who == "ada"
        page.get_by_role("button", name="Log out").click()
        page.get_by_label("Token").wait_for()
        page.goto(f"{url}/models")
        page.get_by_label("Token").wait_for()
        page.close()
    state.store.close()


def test_a_maintenance_window_begins_in_the_readers_local_time(tmp_path: Path, open_page: Any) -> None:
    state = sample_state.state(tmp_path)
    with serving(create_app(state)) as url:
        page = open_page(f"{url}/quiet?nodes=n1")
        page.get_by_label("Begins (default: now)").fill("2030-01-01T10:00")
        page.get_by_role("button", name="Add maintenance").click()
        page.locator("#windows button.ghost").wait_for()
        (window,) = state.store.quiet_periods.maintenance(sample_state.NOW_S)
        assert window.start_s == page.evaluate("new Date('2030-01-01T10:00').getTime() / 1000")
        page.locator("#windows button.ghost").click()
        page.get_by_text("No maintenance windows").wait_for()
        page.close()
    assert state.store.quiet_periods.maintenance(sample_state.NOW_S) == []
    state.store.close()


def test_a_screenshot_of_every_page_is_taken(watched: Watched, open_page: Any, tmp_path: Path) -> None:
    """CLUSTERTWIN_SCREENSHOTS=DIR saves them in DIR."""
    directory = Path(os.environ.get("CLUSTERTWIN_SCREENSHOTS", tmp_path))
    directory.mkdir(parents=True, exist_ok=True)
    # Late enough for closed events; with a verdict they appear in the embedding.
    watched.advance(max(1500 - int(watched.clock.now_s), 0))
    now = watched.loop.state.snapshot
    over = [case.id for case in watched.store.events(Filter(open=False))]
    watched.store.vet(over, "confirmed", who="ada", comment="disk 3 is dying", now_s=now.now_s)
    watched.store.quiet_periods.add_maintenance(
        MaintenanceWindow(("n01",), now.now_s + 60, now.now_s + 7260, "new disks"), now.now_s
    )
    watched.store.quiet_periods.add_silence(Silence(now.now_s + 3600, owner="eve", reason="knows of it"), now.now_s)
    event = watched.store.events(limit=1)[0].id
    paths = {
        "cluster": "/",
        "node": f"/nodes/{now.nodes[0].node}",
        "events": "/events?status=all",
        "event": f"/events/{event}",
        "jobs": "/jobs",
        "job": f"/jobs/{now.jobs[0].job}",
        "embedding": "/embedding",
        "models": "/models",
        "quiet": "/quiet",
        "audit": "/audit",
        "login": "/login",
    }
    for scheme in ("light", "dark"):
        page = open_page(watched.url, scheme)
        until(page, "async () => (await (await fetch('/pictures/embedding')).json()).judged.length > 0")
        for name, path in paths.items():
            page.goto(watched.url + path)
            page.wait_for_load_state("load")
            page.wait_for_timeout(200)
            page.screenshot(path=directory / f"{name}-{scheme}.png", full_page=True)
    sizes = {path.name: path.stat().st_size for path in directory.glob("*.png")}
    assert len(sizes) == 2 * len(paths)
    assert min(sizes.values()) > 10_000, sizes
