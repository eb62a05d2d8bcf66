"""Which of two places in a program comes first: two stacks -> -1, 0 or 1, from the first call site that differs.

Two ranks that run the same program share the outer frames of their stacks. Where they part, inside one function, the
smaller line, or the lower address of native code, is the earlier one. Inside one iteration of a loop, the rank at the
earlier place has done less.
"""

from __future__ import annotations

import re

from clustertwin.telemetry.diagnosis.evidence import Stack

_PYTHON = re.compile(r"^(?P<function>.*) \((?P<file>.*):(?P<place>\d+)\)$")
_NATIVE = re.compile(r"^(?P<function>\S+) \[(?P<file>.*)\+0x(?P<place>[0-9a-f]+)\]$")


def order(one: Stack, other: Stack) -> int:
    """-1 if `one` is earlier, 1 if it is later, 0 if the stacks do not say.

    >>> order(Stack(python=("fail (a.py:9)", "main (a.py:3)")), Stack(python=("work (a.py:20)", "main (a.py:4)")))
    -1
    """
    for mine, its in zip(_places(one), _places(other), strict=False):
        if mine[:2] != its[:2]:
            return 0
        if mine[2] != its[2]:
            return -1 if mine[2] < its[2] else 1
    return 0


def _places(stack: Stack) -> list[tuple[str, str, int]]:
    """(function, file, place) of the frames of the program itself, the outermost first."""
    frames, pattern, base = (stack.python, _PYTHON, 10) if stack.python else (stack.native, _NATIVE, 16)
    matches = [pattern.match(frame) for frame in reversed(frames)]
    return [(match["function"], match["file"], int(match["place"], base)) for match in matches if match]
