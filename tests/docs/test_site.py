"""The documentation site: it builds without a warning, and its notebooks run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tests.docs.page_blocks import DOCS, ROOT
from tests.service.web.pages.browser import chromium

NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a warning and without a network."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install 'clustertwin[docs]'")
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(directory)]
    environment = {
        **os.environ,
        "NO_MKDOCS_2_WARNING": "1",
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return directory


@pytest.mark.slow
def test_the_site_builds_offline_without_a_warning(site: Path):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    addresses = [
        tag
        for page in pages
        for tag in re.findall(r"<(?:script|img|link)[^>]+https?://[^>]+>", page.read_text())
        if 'rel="canonical"' not in tag
    ]
    assert addresses == []
    commands = (site / "reference/commands/index.html").read_text()
    assert "twin sched simulate" in commands
    python = (site / "reference/python/index.html").read_text()
    assert "simulate_cluster" in python


@pytest.mark.slow
@pytest.mark.real
def test_a_page_asks_no_other_site_and_a_command_is_copied_without_its_prompt(site: Path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SilentFiles, directory=str(site)))
    Thread(target=server.serve_forever, daemon=True).start()
    here = f"http://127.0.0.1:{server.server_address[1]}/"
    asked: list[str] = []
    try:
        with chromium() as browser:
            page = browser.new_page()
            page.on("request", lambda request: asked.append(request.url))
            page.goto(f"{here}tutorials/administrator/", wait_until="networkidle")
            code = page.locator("pre code").first
            code.evaluate("element => element.setAttribute('data-md-copying', '')")  # what the theme's copy button does
            copied = code.inner_text()
    finally:
        server.shutdown()
        server.server_close()
    assert copied.strip() == "pip install 'clustertwin[service]'"
    assert asked
    assert [address for address in asked if not address.startswith(here)] == []


class SilentFiles(SimpleHTTPRequestHandler):
    """Files of a directory, without a line for each request."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path):
    nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed: pip install 'clustertwin[docs]'")
    sys.path.insert(0, str(DOCS / "made"))
    try:
        from notebooks import execute
    finally:
        sys.path.pop(0)
    executed = execute(notebook)
    code = [cell for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]
    assert sum(len(cell.source.splitlines()) for cell in code) <= 30
    assert all(cell.get("execution_count") for cell in executed.cells if cell.cell_type == "code")
    assert any(cell.get("outputs") for cell in code), "run docs/made/notebooks.py: the site shows no result"
