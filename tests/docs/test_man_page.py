"""The man page: it has every command and option of `twin`, and troff reads it without a warning."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from tests.docs.page_blocks import DOCS

from clustertwin.cli import COMMANDS
from clustertwin.core.extras import load

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("man") / "twin.1"
    subprocess.run([sys.executable, str(DOCS / "made" / "man_page.py"), str(path)], check=True)
    return path


def test_every_command_and_its_options_are_in_it(page: Path):
    text = page.read_text().replace("\\-", "-")
    for name in COMMANDS:
        assert f".SS twin {name}\n" in text
    simulate = typer.main.get_command(load(COMMANDS["sched"][0])).commands["simulate"]
    section = text[text.index(".B twin sched simulate\n") : text.index(".B twin sched evaluate\n")]
    for parameter in simulate.params:
        assert parameter.opts[0] in section


def test_troff_reads_it_without_a_warning(page: Path):
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not installed")
    done = subprocess.run([groff, "-man", "-ww", "-Tutf8", str(page)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "digital twin of a compute cluster" in done.stdout
