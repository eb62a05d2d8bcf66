"""The code blocks of a page: Markdown -> language, text, and why it is not run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "made" not in path.parts)

_FENCED = re.compile(
    r"^(?P<indent> *)(?:<!-- not run: (?P<reason>[^>]+?) -->\n(?P=indent))?"
    r"```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class CodeBlock:
    language: str
    text: str
    reason: str  # why it is not run; empty: it is


def fenced_blocks(page: Path) -> list[CodeBlock]:
    found = _FENCED.finditer(page.read_text())
    return [CodeBlock(m["language"], dedent(m["text"]), m["reason"] or "") for m in found]


def twin_commands(text: str) -> Iterator[list[str]]:
    """The words of every `twin …` in code: `$ twin`, or a line of an indented block; comments and pipes are cut off."""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        match = re.match(r"(?: {4}|\$ |\s*\$ )\s*(twin [^`]*)", line)
        if match is None:
            continue
        for part in re.split(r";|&&|\s\|\s|\s>\s|\s2>", re.sub(r"(^|\s{1,})#.*", "", match[1])):
            if part.strip().startswith("twin "):
                yield _words(part)[1:]


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quoted part was cut off
        return command.split()
