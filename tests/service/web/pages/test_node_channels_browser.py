"""The lines of node channels on the node page, in a real browser."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.service import sample_state as made
from tests.service.live.test_live_node_channels import with_channels
from tests.service.web.pages.browser import chromium, serving

from clustertwin.core.channels import SPREAD
from clustertwin.service.application import create_app

pytestmark = [pytest.mark.real, pytest.mark.slow]


def test_each_channel_is_drawn_with_its_value_now(tmp_path: Path) -> None:
    state = made.state(tmp_path)
    state.publish(with_channels(state.snapshot), None)
    complaints: list[str] = []
    with chromium() as browser, serving(create_app(state)) as url:
        page = browser.new_page(viewport={"width": 1366, "height": 1000})
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.goto(f"{url}/nodes/n1")
        page.wait_for_selector('#node-channels [data-channel="io_pressure"] canvas', timeout=60_000)
        titles = page.locator("#node-channels h3").all_inner_texts()
        box = page.locator("#node-channels").bounding_box()
        page.close()
    state.store.close()
    assert titles[0] == "memory in use: 40.0 %"
    assert titles[1:] == [f"{channel.label}: unknown" for channel in SPREAD.channels[1:]]
    assert np.all([box["height"] > 100, box["width"] > 600])
    assert complaints == []
