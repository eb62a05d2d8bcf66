"""Reports as HTML files, in Chromium: no violation of axe-core in light and dark colours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.service.web.pages.browser import chromium

from clustertwin.page import figure, page, svg, table
from clustertwin.workload.description.log_description import describe
from clustertwin.workload.description.log_plots import page as description_page
from clustertwin.workload.example_log import example_log


def report() -> str:
    """One of each part that reports are made of."""
    drawing, axes = figure(6, 3, 1, 1)
    axes[0, 0].plot(np.arange(4))
    axes[0, 0].set(title="Waits", xlabel="hours")
    rows = table(["", "wait, s"], [("real", 12.0), ("synthetic", 13.0)], baselines=1)
    return page("a report", f"<h1>a report</h1><h2>Waits</h2>{rows}{svg(drawing, 'waits', 'Two <logs>')}")


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation_in_a_report(tmp_path: Path, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    log = example_log(100)
    pages = {"report": report(), "log": description_page(log, describe(log), "log.swf")}
    with chromium() as browser:
        tab = browser.new_context(color_scheme=scheme).new_page()
        for name, text in pages.items():
            (tmp_path / f"{name}.html").write_text(text)
            tab.goto((tmp_path / f"{name}.html").as_uri())
            found = [violation["id"] for violation in axe.run(tab).response["violations"]]
            assert found == [], name


def test_a_figure_has_a_name_for_people_who_do_not_see_it() -> None:
    assert 'aria-label="Two &lt;logs&gt;: Waits"' in report()
