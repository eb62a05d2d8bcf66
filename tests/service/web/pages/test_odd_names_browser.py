"""Long, tall and right-to-left names in a real browser: pages stay within their window, and numbers in view."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.service import sample_state
from tests.service.web.pages.browser import chromium, serving

from clustertwin.service.application import create_app
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.service.store.quiet_periods import MaintenanceWindow, Silence

pytestmark = [pytest.mark.real, pytest.mark.slow]

WIDE, TALL, HEBREW = "W" * 200, "z" + "\u0301" * 100, "משימה 17"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def named(tmp_path: Path) -> Iterator[ServiceState]:
    """A node and a job of each of these names, with an event, a silence, a maintenance window and a verdict."""
    state, now, names = sample_state.state(tmp_path), sample_state.snapshot(), (WIDE, TALL, HEBREW)
    events = [
        replace(sample_state.EVENT, id=f"w{i}", places=((name, (0, 1)),), jobs=(name,), owner=name, title=name)
        for i, name in enumerate(names)
    ]
    state.store.write([(event, sample_state.WHY) for event in events])
    state.store.vet(["w0"], "confirmed", who=WIDE, comment=WIDE, now_s=1.0)
    state.store.quiet_periods.add_silence(Silence(now.now_s + 60, WIDE, WIDE, WIDE, reason=WIDE, who=WIDE), now.now_s)
    window = MaintenanceWindow((WIDE,), now.now_s + 60, now.now_s + 120, WIDE, who=WIDE)
    state.store.quiet_periods.add_maintenance(window, now.now_s)
    moment = sample_state.moment(names)
    moment = replace(moment, jobs=names, job=np.array([0, 0, 1, 1, 2, 2], np.int32))
    job, node = now.jobs[0], now.nodes[0]
    jobs = [replace(job, job=n, owner=n, job_type=n, name=n, account=n, nodes=(n,)) for n in names]
    nodes = [replace(node, node=name, jobs=(name,)) for name in names]
    scores = sample_state.scores([4.5] * 6)
    changed = replace(now, moment=moment, scored=moment, scores=scores, nodes=tuple(nodes), jobs=tuple(jobs))
    state.publish(replace(changed, events=tuple(events), problems=(WIDE, TALL)), None)
    yield state
    state.store.close()


@pytest.mark.parametrize("width", [1280, 400])
def test_no_page_is_wider_than_its_window(browser: Any, named: ServiceState, width: int) -> None:
    paths = ["/", "/events?status=all", "/events/w0", "/jobs", f"/jobs/{WIDE}", f"/nodes/{WIDE}", f"/jobs/{'Q' * 300}"]
    with serving(create_app(named)) as url:
        page = browser.new_page(viewport={"width": width, "height": 800})
        wide = {}
        for path in (*paths, "/embedding", "/quiet", f"/quiet?job={WIDE}", "/audit", "/models"):
            page.goto(url + path)
            page.locator("#phase[data-state=watching]").wait_for()
            page.wait_for_timeout(300)
            wide[path] = page.evaluate("document.scrollingElement.scrollWidth")
        assert {path: px for path, px in wide.items() if px > width} == {}
        page.close()


def test_long_names_leave_the_numbers_of_a_table_in_view(browser: Any, named: ServiceState) -> None:
    with serving(create_app(named)) as url:
        page = browser.new_page(viewport={"width": 1366, "height": 800})
        for path, table in (("/", "#nodes"), ("/events?status=all", "#listing"), ("/jobs", "#running")):
            page.goto(url + path)
            right = f"document.querySelector('{table} td.number').getBoundingClientRect().right"
            edge = f"document.querySelector('{table} .scroll').getBoundingClientRect().right"
            assert page.evaluate(f"{right} <= {edge}"), path
        page.close()


def test_a_tower_of_accents_covers_no_other_line(browser: Any, named: ServiceState) -> None:
    with serving(create_app(named)) as url:
        page = browser.new_page(viewport={"width": 1366, "height": 800})
        page.goto(f"{url}/audit")
        above, tower = page.locator("#problems .notice").all()
        before = above.screenshot()
        tower.evaluate("notice => notice.style.visibility = 'hidden'")
        assert above.screenshot() == before
        page.close()


#: The owner and the account in the row of a job: whether the account is on the right.
ACCOUNT_IS_RIGHT = """(name) => {
  const row = [...document.querySelectorAll('#running tbody tr')].find((row) => row.textContent.includes(name));
  const box = (part) => part.getBoundingClientRect();
  const [cell, account] = [box(row.cells[2]), box(row.cells[2].querySelector('.quiet'))];
  return account.left > cell.left + account.width;
}"""


def test_a_right_to_left_name_does_not_reorder_the_names_beside_it(browser: Any, named: ServiceState) -> None:
    with serving(create_app(named)) as url:
        page = browser.new_page(viewport={"width": 1366, "height": 800})
        page.goto(f"{url}/jobs")
        assert page.evaluate(ACCOUNT_IS_RIGHT, HEBREW)
        page.close()
