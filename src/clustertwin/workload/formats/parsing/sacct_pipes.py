"""A sacct line with an unescaped `|` in a free-text column -> its cells, if exactly one split is plausible."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
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
