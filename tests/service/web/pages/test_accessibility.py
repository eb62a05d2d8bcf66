"""Every page in Chromium, wide and narrow, light and dark: no violation of axe-core, no overflow, and working keys."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.service import sample_state
from tests.service.web.pages.browser import chromium, serving
from tests.service.web.pages.test_browser import until
from tests.service.web.pages.test_pages import forecast
from tests.service.web.pages.test_try_change import PaperTwin
from tests.service.web.test_route_tables import address

from clustertwin.service.application import create_app
from clustertwin.service.live.queue.change_desk import ChangeDesk
from clustertwin.service.live.queue.queue_settings import QueueSettings
from clustertwin.service.live.snapshot import NodeState, ScoreHistory, ServiceState, Snapshot
from clustertwin.service.store.quiet_periods import MaintenanceWindow, Silence
from clustertwin.service.web import pages
from clustertwin.telemetry.detection.scores import Scores

pytestmark = [pytest.mark.real, pytest.mark.slow]

CPUS = 16
#: n1 has four unusual threads, from just above the threshold to far beyond; n2 has none.
SCORES = {2: 3.5, 5: 6.0, 9: 28.0, 15: 4.0}
WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


def snapshot() -> Snapshot:
    now, moment = sample_state.snapshot(), sample_state.moment(cpus=CPUS)
    score = np.full(2 * CPUS, 0.5, np.float32)
    for cpu, value in SCORES.items():
        score[cpu] = value
    rng = np.random.default_rng(0)
    embedding = rng.normal(size=(len(score), 4)).astype(np.float32)
    error = np.full(len(score), 0.01, np.float32)
    times_s = np.arange(sample_state.NOW_S - 600, sample_state.NOW_S + 1, 10)
    history = np.stack([np.linspace(0, 28, len(times_s)), np.full(len(times_s), 0.5)]).astype(np.float32)
    return replace(
        now,
        moment=moment,
        scored=moment,
        scores=Scores(score, score[:, None], ("reconstruction",), error, embedding),
        nodes=(
            NodeState("n1", "watching", CPUS, sample_state.NOW_S - 1, 28.0, 0.25, len(SCORES), 0, ("17",)),
            NodeState("n2", "stale", CPUS, sample_state.NOW_S - 40, 0.5, 0.01, 0, 0, ()),
        ),
        history=ScoreHistory(times_s, ("n1", "n2"), history),
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ServiceState]]:
    """Events with every verdict, a maintenance window and a silence, so that every kind of pill is on a page."""
    state, now_s = sample_state.state(tmp_path_factory.mktemp("home")), sample_state.NOW_S
    names = ("confirmed", "dismissed", "new-normal")
    events = [replace(sample_state.EVENT, id=name, end_s=now_s - 10) for name in names]
    state.store.write((event, sample_state.WHY) for event in (*events, replace(events[0], id="closed")))
    for name in names:
        state.store.vet([name], name, who="ada", comment="disk 3", now_s=float(now_s))
    periods = state.store.quiet_periods
    periods.add_maintenance(MaintenanceWindow(("n2",), now_s - 60, now_s + 7200, "new disks"), now_s)
    periods.add_silence(Silence(now_s + 3600, owner="ada", reason="known"), now_s)
    state.starts = forecast()
    state.changes = ChangeDesk(QueueSettings(site="/etc/slurm"), PaperTwin())
    state.publish(snapshot(), None)
    with serving(create_app(state)) as url:
        yield url, state
    state.store.close()


def paths(state: ServiceState) -> list[str]:
    own = [address(page, state) for page in pages.pages()]
    return [*own, "/events?status=all", "/events/e1", "/events/confirmed", "/jobs/17", "/nosuch"]


@pytest.fixture
def visit(browser: Any, service: tuple[str, ServiceState]) -> Iterator[Any]:
    """Opens pages. An error of a script fails the test."""
    contexts, errors = [], []

    def visit_(path: str = "/", scheme: str = "light", viewport: dict[str, int] = WIDE) -> Any:
        context = browser.new_context(viewport=viewport, color_scheme=scheme, locale="en-GB")
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(service[0] + path)
        return page

    yield visit_
    for context in contexts:
        context.close()
    assert errors == []


def drawn(page: Any) -> None:
    """Wait until the scripts of the page have drawn what they draw."""
    page.wait_for_load_state("load")
    page.wait_for_timeout(400)


#: As `theme.js` sets it, from the reader's choice or the system's setting.
SET_THEME = """(scheme) => {
  document.documentElement.dataset.theme = scheme;
  document.dispatchEvent(new Event("twin:theme"));
}"""


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_axe_finds_no_violation_on_any_page_and_nothing_overflows(visit: Any, service: Any, viewport: Any) -> None:
    """CLUSTERTWIN_SCREENSHOTS=DIR saves a picture of each page in DIR/axe."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    screenshots = os.environ.get("CLUSTERTWIN_SCREENSHOTS")
    page, found = visit("/", "light", viewport), {}
    page.emulate_media(reduced_motion="reduce")  # colours change at once
    for path in paths(service[1]):
        page.goto(service[0] + path)
        drawn(page)
        if viewport is PHONE:
            fits_a_phone(page, path)
        for scheme in ("light", "dark"):
            page.evaluate(SET_THEME, scheme)
            if screenshots:
                name = path.strip("/").replace("/", "-").replace("?", "-") or "cluster"
                picture = Path(screenshots) / "axe" / f"{name}-{scheme}-{viewport['width']}.png"
                page.screenshot(path=picture, full_page=True)
            for violation in axe.run(page).response["violations"]:
                nodes = [f"{node['html'][:120]} {node['failureSummary'][-160:]}" for node in violation["nodes"][:4]]
                found[f"{path} {scheme} {violation['id']}"] = nodes
    assert not found, "\n".join(f"{place}: {nodes}" for place, nodes in found.items())


def test_the_menu_fits_every_width(visit: Any) -> None:
    """At 1280 px the buttons of the bar lay outside of the screen."""
    page = visit()
    for width in (801, 1024, 1151, 1280, 1366, 1401):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


#: Keeps the texts that are drawn in the heat map of a node.
KEEP_TEXTS = """() => {
  const draw = CanvasRenderingContext2D.prototype.fillText;
  window.texts = new Set();
  CanvasRenderingContext2D.prototype.fillText = function (text, ...where) {
    if (this.canvas.parentElement.id === "node") window.texts.add(text);
    return draw.call(this, text, ...where);
  };
}"""


def test_the_heat_map_of_five_minutes_has_several_times_on_a_phone(visit: Any, service: Any) -> None:
    page = visit("/login", "light", PHONE)
    page.add_init_script(f"({KEEP_TEXTS})()")
    page.goto(f"{service[0]}/nodes/n1")
    until(page, "document.getElementById('node')?.dataset.end > 0")
    drawn(page)
    times = [text for text in page.evaluate("[...window.texts]") if re.fullmatch(r"\d\d:\d\d", text)]
    assert len(times) >= 2, times


def fits_a_phone(page: Any, path: str) -> None:
    """Nothing is wider than the screen, and the whole menu is on it."""
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    assert page.evaluate("document.body.scrollWidth") <= 390, path
    if path == "/login":
        return
    boxes = [link.bounding_box() for link in page.locator("header.bar nav a").all()]
    assert len(boxes) == len(pages.navigation())
    for box in boxes:
        assert box is not None, path
        assert box["x"] >= 0, path
        assert box["x"] + box["width"] <= 390, path
        assert box["y"] + box["height"] <= 300, path


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_axe_finds_no_violation_in_the_answer_of_a_comparison(visit: Any, viewport: Any, tmp_path: Path) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = visit("/try", "light", viewport)
    page.get_by_label("PriorityWeightAge").fill("2000")
    page.get_by_role("button", name="Compare").click()
    page.get_by_text("Median start of each job").wait_for()
    directory = Path(os.environ.get("CLUSTERTWIN_SCREENSHOTS", tmp_path)) / "axe"
    page.screenshot(path=directory / f"try-answer-{viewport['width']}.png", full_page=True)
    assert page.get_by_label("PriorityWeightAge").input_value() == "2000"
    assert [violation["id"] for violation in axe.run(page).response["violations"]] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


def test_axe_finds_no_violation_in_the_list_of_keys(visit: Any) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = visit()
    page.keyboard.press("?")
    page.locator("#help[open]").wait_for()
    assert [violation["id"] for violation in axe.run(page).response["violations"]] == []


#: The colour in the middle of each row's marker, as a set of rows that have the colour of an alarm.
MARKED_ROWS = """() => {
  const canvas = document.querySelector('#node canvas'), pen = canvas.getContext('2d');
  const probe = document.createElement('canvas').getContext('2d');
  probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--alarm').trim();
  probe.fillRect(0, 0, 1, 1);
  const alarm = probe.getImageData(0, 0, 1, 1).data.slice(0, 3).join();
  const rowPx = (canvas.height - 20 * devicePixelRatio) / 16, marked = [];
  for (let row = 0; row < 16; row += 1) {
    const pixel = pen.getImageData(3, Math.round((row + 0.5) * rowPx), 1, 1).data;
    if (pixel[3] === 255 && pixel.slice(0, 3).join() === alarm) marked.push(row);
  }
  return marked;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_heat_map_of_a_node_marks_exactly_the_unusual_threads(visit: Any, scheme: str) -> None:
    page = visit("/nodes/n1", scheme)
    until(page, "document.getElementById('node')?.dataset.end > 0")
    assert page.evaluate(MARKED_ROWS) == sorted(SCORES)
    links = page.locator("#unusual_threads a").all_inner_texts()
    assert links == ["cpu9", "cpu5", "cpu15", "cpu2"]


def test_scores_of_different_height_look_different(visit: Any) -> None:
    page = visit("/nodes/n1")
    until(page, "document.querySelectorAll('#unusual_threads .score').length == 4")
    looks = page.locator("#unusual_threads .score").evaluate_all(
        """all => all.map((score) => {
          const style = getComputedStyle(score);
          return [score.textContent, style.color, style.backgroundColor].join(' ');
        })"""
    )
    by_score = dict(look.split(" ", 1) for look in looks)
    assert set(by_score) == {"28.0", "6.0", "4.0", "3.5"}
    assert by_score["28.0"] != by_score["6.0"]


def test_the_cluster_page_shows_how_many_threads_of_a_node_are_unusual(visit: Any) -> None:
    page = visit("/")
    row = page.locator("#nodes tbody tr", has_text="n1")
    assert "4 of 16" in row.inner_text()
    until(page, "document.getElementById('cluster')?.dataset.end > 0")
    page.locator("#cluster canvas").focus()
    page.keyboard.press("End")
    assert "now 4 of 16 threads unusual" in page.locator("#cluster .tip").inner_text()


def test_the_keyboard_reaches_every_thread_of_the_heat_map(visit: Any) -> None:
    page = visit("/nodes/n1")
    until(page, "document.getElementById('node')?.dataset.end > 0")
    page.locator("[data-channel=iowait]").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement === document.querySelector('#node canvas')")
    spoken, tip = page.locator("#node [aria-live]"), page.locator("#node .tip")
    assert spoken.inner_text().startswith("cpu9 ")  # the thread with the highest score
    assert "unusual, score 28.0" in spoken.inner_text()
    page.keyboard.press("ArrowDown")
    assert spoken.inner_text().startswith("cpu10 ")
    assert tip.is_visible()
    for _ in range(CPUS):
        page.keyboard.press("ArrowUp")
    assert spoken.inner_text().startswith("cpu0 ")
    newest = spoken.inner_text()
    page.keyboard.press("ArrowLeft")
    assert spoken.inner_text() != newest  # a second earlier
    page.keyboard.press("ArrowRight")
    assert spoken.inner_text() == newest
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="cpu0: measured and reconstructed").wait_for()
    page.keyboard.press("Escape")
    assert not tip.is_visible()


def test_a_verdict_with_nothing_marked_shows_a_sentence(visit: Any) -> None:
    page = visit("/events")
    page.get_by_role("button", name="Confirm").click()
    page.get_by_text("No event is marked. Mark at least one event, then choose a verdict.").wait_for()
    assert page.locator("#toast").is_hidden()
    assert page.locator("#listing tbody tr").count() > 0


def column(page: Any, table: str, place: int) -> list[str]:
    return [cell.strip() for cell in page.locator(f"{table} tbody tr td:nth-child({place})").all_inner_texts()]


def test_a_table_is_sorted_by_a_click_on_a_heading_and_stays_sorted(visit: Any, service: Any) -> None:
    page = visit("/")
    assert column(page, "#nodes", 1) == ["n1", "n2"]
    page.locator("#nodes").get_by_role("button", name="Score", exact=True).click()
    page.locator("#nodes").get_by_role("button", name="Score", exact=True).click()  # first the highest, then the lowest
    assert column(page, "#nodes", 1) == ["n2", "n1"]
    assert page.locator("#nodes th[aria-sort=ascending]").inner_text().startswith("Score")
    page.evaluate("document.querySelector('#nodes table').dataset.old = ''")
    service[1].publish(replace(service[1].snapshot, number=service[1].snapshot.number + 1), None)
    until(page, "document.querySelector('#nodes table') && !('old' in document.querySelector('#nodes table').dataset)")
    until(page, "document.querySelector('#nodes tbody tr').textContent.includes('n2')")


def test_a_table_is_exported_as_csv_and_json_without_formulas(visit: Any, service: Any) -> None:
    formula = replace(sample_state.EVENT, id="formula", owner='=HYPERLINK("x")', jobs=("a,b",), end_s=9_990)
    service[1].store.write([(formula, sample_state.WHY)])
    page = visit("/events?status=all&job=a,b")
    saved = {}
    for name in ("CSV", "JSON"):
        with page.expect_download() as download:
            page.locator("#listing p.export").get_by_role("button", name=name).click()
        saved[name] = Path(download.value.path()).read_text()
    (row,) = list(csv.DictReader(saved["CSV"].splitlines()))
    (same,) = json.loads(saved["JSON"])
    assert list(row) == list(same) == ["What", "Since", "Where", "Owner", "Threads", "Strength", "Status"]
    assert (row["Since"], row["Strength"]) == ("1970-01-01T02:43:20Z", "4.5")
    assert row["What"] == same["What"]
    assert row["What"].startswith("Job a,b is unusual: iowait 70 %")
    assert (row["Owner"], same["Owner"]) == ('\'=HYPERLINK("x")', '=HYPERLINK("x")')


def test_a_time_that_is_selected_in_a_plot_stays_until_a_double_click(visit: Any, service: Any) -> None:
    page = visit("/nodes/n1")
    until(page, "document.querySelectorAll('#plots .u-over').length === 4")
    page.wait_for_timeout(400)
    over = page.locator("#plots .u-over").first
    labels = "document.querySelector('#plots .uplot canvas').toDataURL()"
    whole = page.evaluate(labels)
    box = over.bounding_box()
    page.mouse.move(box["x"] + 40, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 90, box["y"] + 20, steps=4)
    page.mouse.up()
    page.wait_for_timeout(300)
    zoomed = page.evaluate(labels)
    assert zoomed != whole
    service[1].publish(replace(service[1].snapshot, number=service[1].snapshot.number + 1), None)
    page.wait_for_timeout(1200)
    assert page.evaluate(labels) == zoomed
    over.dblclick()
    service[1].publish(replace(service[1].snapshot, number=service[1].snapshot.number + 1), None)
    page.wait_for_timeout(1200)
    assert page.evaluate(labels) == whole


def test_an_open_page_says_when_the_replay_ends(visit: Any, service: Any) -> None:
    state, before = service[1], service[1].snapshot
    page = visit("/")
    page.locator("#phase[data-state=watching]").wait_for()
    state.publish(replace(before, number=before.number + 1, replay_ended=True), None)
    page.locator("#phase", has_text="replay ended").wait_for()
    page.get_by_text("The replay has ended. The pages show the last second of the recording.").wait_for()
    state.publish(replace(before, number=before.number + 2), None)
    page.locator("#phase[data-state=watching]").wait_for()
    assert page.locator("#ended article").count() == 0
