"""The chart of a schedule as a page: its size, its key, its names, and that it zooms in a real browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.web.pages.browser import chromium

from clustertwin.workload.jobs import Jobs
from clustertwin.workload.simulator.gantt import draw, load_over_time
from clustertwin.workload.simulator.gantt_page import varints
from clustertwin.workload.simulator.schedule import Schedule

NASTY = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>"
JOB_BYTES = 70  # 2 MB for the 28,489 jobs of KTH-SP2


def schedule(n: int = 40, procs: int = 16, names: tuple[str, ...] = ("ada", NASTY, "cy")) -> Schedule:
    """Jobs in order of submission, each as early as its processors are free."""
    rng = np.random.default_rng(3)
    submit_s = np.cumsum(rng.integers(0, 600, n)).astype(float)
    run_s, size = rng.integers(1, 4000, n).astype(float), rng.integers(1, procs // 2 + 1, n)
    free_s, start_s = np.zeros(procs), np.zeros(n)
    for job in range(n):
        taken = np.argsort(free_s, kind="stable")[: size[job]]
        start_s[job] = max(submit_s[job], free_s[taken].max(), start_s[job - 1] if job else 0.0)
        free_s[taken] = start_s[job] + run_s[job]
    jobs = Jobs.build(
        submit_s, run_s, cpus=size, user=rng.integers(0, len(names), n), request_s=run_s * 2, names={"user": names}
    )
    return Schedule(jobs, start_s, run_s, size, procs, "fcfs", "none", {})


def document(text: str) -> dict:
    found = re.search(r"<script type=application/json id=schedule>(.*?)</script>", text, re.S)
    assert found
    return json.loads(found[1])


def numbers(text: str) -> list[int]:
    """Decode a column, byte by byte."""
    values, value, place = [], 0, 0
    for byte in base64.b64decode(text):
        value |= (byte & 127) << place
        place += 7
        if byte < 128:
            values.append(value >> 1 if value % 2 == 0 else -(value >> 1) - 1)
            value = place = 0
    return values


def written(tmp_path: Path, planned: Schedule, hours: tuple[float, float] | None = None) -> str:
    draw(planned, tmp_path / "chart.html", hours)
    return (tmp_path / "chart.html").read_text()


@given(st.lists(st.integers(-(2**52), 2**52)))
def test_whole_numbers_survive_the_encoding(values: list[int]):
    assert numbers(base64.b64encode(varints(values)).decode()) == values


def test_the_page_has_every_job_and_every_box(tmp_path: Path):
    planned = schedule()
    columns = {name: numbers(text) for name, text in document(written(tmp_path, planned))["columns"].items()}
    assert np.cumsum(columns["id"]).tolist() == planned.jobs.id.tolist()
    assert (np.cumsum(columns["submit_s"]) + columns["wait_s"]).tolist() == planned.start_s.tolist()
    assert columns["run_s"] == planned.run_s.tolist()
    ends = np.cumsum(columns["boxes"])
    drawn = [sum(columns["count"][end - n : end]) for n, end in zip(columns["boxes"], ends, strict=True)]
    assert drawn == planned.size.tolist()


def test_a_job_takes_few_bytes(tmp_path: Path):
    small, large = (len(written(tmp_path, schedule(n, 128))) for n in (100, 2100))
    assert (large - small) / 2000 < JOB_BYTES
    assert small < 40_000  # the page without its jobs


def test_names_cannot_become_markup_or_script(tmp_path: Path):
    text = written(tmp_path, replace(schedule(), policy=NASTY))
    assert document(text)["users"]["1"] == NASTY

    tags: list[str] = []

    class Elements(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append(tag)

    Elements().feed(text)
    assert tags.count("script") == 2
    assert "img" not in tags


def test_control_characters_in_the_names_of_users_are_spelled_out(tmp_path: Path):
    text = written(tmp_path, schedule(names=("ada", "a\u202e\x1b[2J", "Müller-Σ")))
    assert list(document(text)["users"].values()) == ["ada", "a\\u202e\\x1b[2J", "Müller-Σ"]


def test_the_page_loads_nothing_and_allows_its_own_script_only(tmp_path: Path):
    text = written(tmp_path, schedule(names=("ada",)))
    assert not re.search(r"https?://|\bsrc=|@import|url\(", text)
    script = text[text.rindex("<script>") + len("<script>") : text.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'\"" in text


def test_hours_keep_the_jobs_that_wait_or_run_in_them(tmp_path: Path):
    planned = schedule()
    shown = document(written(tmp_path, planned, (1.0, 2.0)))
    begin_s = planned.jobs.submit_s[0]
    first_s, last_s = begin_s + 3600, begin_s + 7200
    assert shown["view_s"] == [first_s, last_s]
    wanted = planned.jobs.id[(planned.jobs.submit_s <= last_s) & (planned.end_s >= first_s)]
    assert 0 < len(wanted) < len(planned)
    assert np.cumsum(numbers(shown["columns"]["id"])).tolist() == wanted.tolist()


@pytest.mark.real
@pytest.mark.slow
def test_long_and_tall_names_stay_in_the_key(tmp_path: Path):
    written(tmp_path, schedule(names=("W" * 200, "z" + "\u0301" * 100)))
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 400, "height": 800})
        page.goto((tmp_path / "chart.html").as_uri())
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 400
        chart = page.locator("canvas").first
        before = chart.screenshot()
        page.evaluate("for (const key of document.querySelectorAll('#key button')) key.style.visibility = 'hidden'")
        assert chart.screenshot() == before


@pytest.mark.real
@pytest.mark.slow
def test_the_page_zooms_selects_and_explains_its_colours_in_chromium(tmp_path: Path):
    planned = schedule()
    written(tmp_path, planned)
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1200, "height": 800})
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
        page.on("request", lambda request: problems.append(request.url) if "chart.html" not in request.url else None)
        page.goto((tmp_path / "chart.html").as_uri())
        # The key names each user, as text.
        assert set(page.locator("#key button").all_inner_texts()) == {"ada", NASTY, "cy"}
        assert page.title() == "fcfs, backfilling: none"
        # The script counts processors and waiting jobs as the library does.
        times_s, in_use, waiting = load_over_time(planned)
        assert page.evaluate("[load.times, load.used, load.waiting]") == [
            times_s.tolist(), in_use.tolist(), waiting.tolist()
        ]  # fmt: skip
        whole = page.evaluate("[from, to]")
        page.focus("#chart")
        page.keyboard.press("+")
        page.keyboard.press("ArrowRight")
        near = page.evaluate("[from, to]")
        assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 2)
        page.keyboard.press("0")
        assert page.evaluate("[from, to]") == whole
        chart = page.locator("#chart").bounding_box()
        page.mouse.move(chart["x"] + 400, chart["y"] + 100)
        page.mouse.wheel(0, -300)
        page.wait_for_timeout(200)
        zoomed = page.evaluate("to - from")
        assert zoomed < whole[1] - whole[0]
        page.mouse.down()
        page.mouse.move(chart["x"] + 500, chart["y"] + 100, steps=4)
        page.mouse.up()
        assert page.evaluate("to - from") < zoomed / 5
        page.keyboard.press("0")
        # A click selects the job that is drawn there.
        page.mouse.click(*page.evaluate(
            "(() => { const at = chart.getBoundingClientRect();"
            " return [at.left + x((start_s[7] + end_s[7]) / 2), at.top + y(column.first[firstBox[7]] + 0.5)]; })()"
        ))  # fmt: skip
        assert page.inner_text("#job").startswith(f"Job {planned.jobs.id[7]} of ")
        page.keyboard.press("Escape")
        page.fill("#find input", str(planned.jobs.id[3]))
        page.click("#find button")
        assert page.inner_text("#job").startswith(f"Job {planned.jobs.id[3]} of ")
        page.select_option("#colour", "wait")
        assert "at most 1 min" in page.inner_text("#key")
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert problems == []


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation_in_the_chart(tmp_path: Path, scheme: str, width: int):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    written(tmp_path, schedule(names=("ada", "bob", "cy")))
    with chromium() as browser:
        context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
        page = context.new_page()
        page.goto((tmp_path / "chart.html").as_uri())
        found = axe.run(page).response["violations"]
        assert [(violation["id"], [node["html"][:120] for node in violation["nodes"]]) for violation in found] == []
        context.close()
