"""Write the man page: the help of every `twin` command -> twin.1, in troff.

python docs/made/man_page.py site/twin.1    a few seconds; then: man -l site/twin.1
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

sys.path.insert(0, str(Path(__file__).parent))
from command_tree import leaves

from clustertwin import __version__
from clustertwin.cli import COMMANDS, NEEDED
from clustertwin.core.extras import load

HEAD = r""".TH TWIN 1 "" "clustertwin {version}" "clustertwin"
.SH NAME
twin \- a digital twin of a compute cluster
.SH SYNOPSIS
.B twin
.I command
[\fIoptions\fR]
.SH DESCRIPTION
Every command that prints accepts
.BR \-\-json :
one document on standard output, progress on standard error.
The exit code is 0 only if the command did its work.
.B twin \-\-install\-completion
completes commands in your shell.
.SH COMMANDS
"""
TAIL = r""".SH ENVIRONMENT
.TP
.B CLUSTERTWIN_HOME
The home of the service: events, verdicts, recordings and models.
.SH SEE ALSO
.BR squeue (1),
.BR prometheus (1)
"""


def man_page() -> str:
    """The page in troff: a section for each command, a paragraph for each of its options."""
    parts = [HEAD.format(version=plain(__version__))]
    for name, (target, line) in COMMANDS.items():
        needs = f" Needs the extra {NEEDED[name]}." if name in NEEDED else ""
        parts.append(f".SS twin {plain(name)}\n{plain(line + needs)}\n")
        for words, command in leaves(typer.main.get_command(load(target)), (name,)):
            if len(words) > 1:
                parts.append(f".PP\n.B twin {plain(' '.join(words))}\n.br\n{plain(command.help or '')}\n")
            parts += [_option(each) for each in command.params if not getattr(each, "hidden", False)]
    return "".join((*parts, TAIL))


def plain(text: str) -> str:
    """Text that troff prints as it is: no escapes, no requests, hyphens that can be copied.

    >>> plain(".so /etc/passwd --json")
    '\\\\&.so /etc/passwd \\\\-\\\\-json'
    """
    escaped = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped


def _option(parameter: Any) -> str:
    names = ", ".join(plain(name) for name in (*parameter.opts, *parameter.secondary_opts))
    return f".TP\n.B {names}\n{plain(getattr(parameter, 'help', '') or '') or '.br'}\n"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(man_page(), encoding="utf-8")
