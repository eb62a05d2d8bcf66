"""The pages of the documentation: their commands exist, their Python runs, their links lead somewhere."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.docs.page_blocks import DOCS, PAGES, ROOT, CodeBlock, fenced_blocks, twin_commands

from clustertwin.cli import COMMANDS
from clustertwin.cli.command_examples import EXAMPLES
from clustertwin.core.extras import load

#: Pages whose Python blocks are fragments: they use names of the reader. Their imports are checked.
FRAGMENTS = {
    "detection.md": "traces, models and directories are the reader's; tests/telemetry/detection makes the same calls",
    "models.md": "the model is the reader's; tests/telemetry/models makes the same call",
    "sources.md": "the servers are the reader's; tests/telemetry/ingest/sources makes the same calls",
}


def name_of(page: Path) -> str:
    return str(page.relative_to(DOCS))


@pytest.fixture(scope="module")
def commands() -> dict[str, Any]:
    return {name: typer.main.get_command(load(target)) for name, (target, _) in COMMANDS.items() if name != "exporter"}


def fault(words: list[str], commands: dict[str, Any]) -> str:
    """What is wrong with a command line; empty if its command and its options exist."""
    if words[0].startswith("-") or words[0] == "exporter" or words[:2] in (["evidence", "take"], ["evidence", "serve"]):
        return ""  # what runs on nodes has a parser of its own; tests/telemetry/exporter and diagnosis call it
    command = commands.get(words[0])
    if command is None:
        return f"no command {words[0]}"
    rest = words[1:]
    while hasattr(command, "commands"):
        if not rest or rest[0] not in command.commands:
            return "" if not rest or "|" in rest[0] else f"no command {' '.join(words[:2])}"
        command, rest = command.commands[rest[0]], rest[1:]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    used = {word.partition("=")[0] for word in rest if re.match(r"--[a-z]", word)}
    return f"unknown options {sorted(used - known - {'--help'})}" if used - known - {"--help"} else ""


def test_every_command_on_every_page_exists_with_its_options(commands):
    lines = [(page.name, words) for page in [*PAGES, ROOT / "README.md"] for words in twin_commands(page.read_text())]
    faults = {f"{page}: twin {' '.join(words)}": fault(words, commands) for page, words in lines}
    assert {line: problem for line, problem in faults.items() if problem} == {}
    assert len(lines) > 100


def leaf_words(command: Any, words: str) -> list[str]:
    """The words of each command of a group, or of the command itself."""
    inner = getattr(command, "commands", {})
    return [each for name in inner for each in leaf_words(inner[name], f"{words} {name}")] if inner else [words]


def test_every_command_has_an_example_with_options_that_exist(commands):
    words = {words for name, command in commands.items() for words in leaf_words(command, name)}
    assert words - EXAMPLES.keys() == {"evidence take", "evidence serve"}  # they have a parser of their own
    assert EXAMPLES.keys() <= words
    for name, lines in EXAMPLES.items():
        for line in lines:
            assert line.startswith(name)
            assert fault(shlex.split(line), commands) == "", line


def test_a_command_that_does_not_exist_is_found(commands):
    (words,) = twin_commands("    twin sched simulate log.swf --nonsense 3   # a comment")
    assert fault(words, commands) == "unknown options ['--nonsense']"
    assert fault(["nonsense"], commands) == "no command nonsense"


@pytest.mark.parametrize("page", [page for page in PAGES if name_of(page) in FRAGMENTS], ids=name_of)
def test_the_imports_of_fragments_work(page: Path):
    blocks = [block for block in fenced_blocks(page) if block.language == "python"]
    assert blocks
    for block in blocks:
        imports = [node for node in ast.parse(block.text).body if isinstance(node, ast.Import | ast.ImportFrom)]
        exec(compile(ast.Module(imports, []), str(page), "exec"), {})


RUN = [
    page
    for page in PAGES
    if name_of(page) not in FRAGMENTS and any(block.language in ("python", "console") for block in fenced_blocks(page))
]


def run_console(block: CodeBlock, place: Path) -> None:
    for words in twin_commands(block.text):
        environment = {**os.environ, "COLUMNS": "120"}
        done = subprocess.run(
            [sys.executable, "-m", "clustertwin", *words], cwd=place, capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, f"twin {' '.join(words)}: {done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_the_blocks_of_a_page_run_in_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in fenced_blocks(page):
        if block.reason:
            continue
        if block.language == "python":
            exec(compile(block.text, str(page), "exec"), names)
        elif block.language == "console":
            assert "pip install" not in block.text, "mark it as not run"
            run_console(block, tmp_path)


def test_the_readme_is_one_screen_and_its_links_work_in_a_clone():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 60
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert targets
    assert [target for target in targets if not is_place(target)] == []


def is_place(target: str) -> bool:
    """Whether a link names a file and, after #, a heading of it."""
    name, _, anchor = target.partition("#")
    if not (ROOT / name).exists():
        return False
    headings = re.findall(r"^#+ (.+)$", (ROOT / name).read_text(), re.MULTILINE) if anchor else []
    return not anchor or anchor in {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in headings}


def test_the_page_on_a_package_index_has_no_links_that_break_there():
    text = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["readme"]["text"]
    assert re.findall(r"\]\((?!https://)", text) == []


def test_every_row_of_figures_in_the_readme_says_where_its_data_are_from():
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("|")][2:]
    assert len(rows) == 5
    for row in rows:
        assert re.search("simulated|recorded", row.split("|")[2])
        assert "`" in row.split("|")[5]


def test_the_glossary_has_the_words_of_the_field():
    words = re.findall(r"^\*\*(.+?)\*\*$", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    assert {"score", "view", "error", "moment", "event", "champion", "finding"} <= set(words)
    assert words == sorted(words)
