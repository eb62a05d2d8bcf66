"""The documentation site: it builds without a warning, and its notebooks run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.page_blocks import DOCS, ROOT

NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
def test_the_site_builds_offline_without_a_warning(tmp_path: Path):
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install 'clustertwin[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {
        **os.environ,
        "NO_MKDOCS_2_WARNING": "1",
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 40
    addresses = [
        tag
        for page in pages
        for tag in re.findall(r"<(?:script|img|link)[^>]+https?://[^>]+>", page.read_text())
        if 'rel="canonical"' not in tag
    ]
    assert addresses == []
    commands = (tmp_path / "site/reference/commands/index.html").read_text()
    assert "twin sched simulate" in commands
    python = (tmp_path / "site/reference/python/index.html").read_text()
    assert "simulate_cluster" in python


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
