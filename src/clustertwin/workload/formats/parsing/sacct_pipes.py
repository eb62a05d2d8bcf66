"""Lines of sacct, which escapes nothing -> their cells, by a mark that users do not know or the only plausible split.

A text of a user may contain `|` and line feeds, so it can look like other fields or like a whole row of another user.
With `sacct --delimiter "|$(openssl rand -hex 8)|"` nobody knew the separator when the job was submitted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from itertools import combinations_with_replacement

from clustertwin.workload.formats.parsing.findings import LogFindings

#: Free-text columns. sacct does not escape a `|` in them.
FREE_TEXT = ("JobName", "Comment", "AdminComment", "SystemComment", "SubmitLine", "WorkDir", "Extra", "Container")
#: A line with more possible splits is not repaired: their number grows exponentially.
MOST_SPLITS = 1000
#: Patterns of the typed columns. They decide which of several splits is meant.
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+(\.\d+)?([+-]\d\d:?\d\d|Z)?$|\d+$|Unknown$|None$|$")
_PATTERNS = {
    "JobID": re.compile(r"\d+(_(\d+|\[.*\]))?(\+\d+)?(\.\w+)?$"), "JobIDRaw": re.compile(r"\d+(\.\w+)?$"),
    "State": re.compile(r"[A-Z_]+\+?( by \d+)?$"), "Submit": _TIME, "Start": _TIME, "End": _TIME,
    "ElapsedRaw": re.compile(r"\d*$"), "ReqCPUS": re.compile(r"\d*$"), "AllocCPUS": re.compile(r"\d*$"),
}  # fmt: skip

#: What stands between the bars of a mark. A shorter word could be guessed.
_MARK = re.compile(r"[0-9A-Za-z]{12,64}$")
#: Of a log without a mark.
FORGEABLE = (
    "texts of users ({}) can contain false rows, which look like rows of other users; "
    'print the log with sacct --delimiter "|$(openssl rand -hex 8)|"'
)


def mark_of(names: Sequence[str]) -> str:
    """The word between the bars of a random separator, or nothing.

    >>> mark_of(["JobID", "0f1e2d3c4b5a6978", "User", "0f1e2d3c4b5a6978", "Submit"])
    '0f1e2d3c4b5a6978'
    """
    words = set(names[1::2])
    if len(names) < 3 or len(names) % 2 == 0 or len(words) != 1 or words & set(names[::2]):
        return ""
    (word,) = words
    return word if _MARK.match(word) else ""


def forgeable(names: Sequence[str]) -> str:
    """What to report about a log whose separator users know, or nothing."""
    columns = [name for name in names if name in FREE_TEXT]
    return FORGEABLE.format(", ".join(columns)) if columns else ""


class MarkedLine:
    """Splits a line with too many `|` at its marks. A line with another number of marks is no row."""

    def __init__(self, mark: str) -> None:
        self._mark = mark

    def __call__(self, line: int, text: str, expected: int) -> list[str] | None:
        cells = text.rstrip("\r\n").split(f"|{self._mark}|")
        if len(cells) != (expected + 1) // 2:
            return None
        return [word for cell in cells for word in (cell, self._mark)][:-1]


class PipeRepair:
    """Splits a line with too many `|`: the surplus separators belong to free-text columns."""

    def __init__(self, names: list[str], findings: LogFindings) -> None:
        self._names, self._findings = names, findings
        self._free = [i for i, name in enumerate(names) if name in FREE_TEXT]

    def __call__(self, line: int, text: str, expected: int) -> list[str] | None:
        cells = text.split("|")
        surplus = len(cells) - expected
        if surplus <= 0 or not self._free:
            return None
        if math.comb(surplus + len(self._free) - 1, surplus) > MOST_SPLITS:
            return None
        plausible = [split for split in self._splits(cells, surplus) if self._fits(split)]
        if len(plausible) != 1:
            return None
        self._findings.note(line, f"{surplus} more '|' than columns; treated as part of a free-text column")
        return plausible[0]

    def _splits(self, cells: list[str], surplus: int) -> Iterable[list[str]]:
        """Every assignment of the surplus separators to free-text columns."""
        for owners in combinations_with_replacement(self._free, surplus):
            split, at = [], 0
            for i in range(len(self._names)):
                width = 1 + owners.count(i)
                split.append("|".join(cells[at : at + width]))
                at += width
            yield split

    def _fits(self, split: list[str]) -> bool:
        cells = zip(self._names, split, strict=True)
        return all(name not in _PATTERNS or _PATTERNS[name].match(cell) for name, cell in cells)
