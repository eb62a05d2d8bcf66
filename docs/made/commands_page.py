"""A hook of mkdocs: the help of every `twin` command -> the page reference/commands.md, whenever the site is built."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
from command_tree import leaves

from clustertwin.cli import COMMANDS, NEEDED
from clustertwin.cli.command_examples import EXAMPLES
from clustertwin.core.extras import load

HEAD = """# Commands

This page is made from the commands themselves. Every command that prints accepts `--json`: one document on
standard output, progress on standard error. The exit code is 0 only if the command did its work.

`twin --install-completion` completes commands and options in your shell; for all users, write the output
of `twin --show-completion bash` to `/etc/bash_completion.d/twin`. `make docs` makes this site and a man
page: `man -l site/twin.1`.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    files.append(File.generated(config, "reference/commands.md", content=page()))
    return files


def page() -> str:
    """The page in Markdown: a section for each command, a part for each of its words."""
    parts = [HEAD]
    for name, (target, line) in COMMANDS.items():
        needs = f" Needs `pip install 'clustertwin[{NEEDED[name]}]'`." if name in NEEDED else ""
        parts.append(f"## twin {name}\n\n{line}{needs}\n")
        parts += [_command(words, command) for words, command in leaves(typer.main.get_command(load(target)), (name,))]
    return "\n".join(parts)


def _command(words: tuple[str, ...], command: Any) -> str:
    rows = [_row(parameter) for parameter in command.params if not getattr(parameter, "hidden", False)]
    table = "| | |\n|---|---|\n" + "\n".join(rows) if rows else ""
    title = f"### twin {' '.join(words)}\n\n" if len(words) > 1 else ""
    examples = "".join(f"    twin {line}\n" for line in EXAMPLES.get(" ".join(words), ()))
    return f"{title}{(command.help or '').strip()}\n\n{examples}\n{table}\n"


def _row(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    help_text = (getattr(parameter, "help", "") or "").replace("|", "\\|").replace("\n", " ")
    return f"| {names} | {help_text} |"
