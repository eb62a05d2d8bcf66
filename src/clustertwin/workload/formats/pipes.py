"""A line of sacct with a `|` in a user's own words -> its cells, if exactly one way to cut it makes sense."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import combinations_with_replacement

from clustertwin.workload.formats.reading import Findings

#: Columns in which a user's own words may hold a `|`, which sacct does not escape.
FREE_TEXT = ("JobName", "Comment", "AdminComment", "SystemComment", "SubmitLine", "WorkDir", "Extra", "Container")
#: What cells of the typed columns look like, to tell which of several ways to cut a line is meant.
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+(\.\d+)?([+-]\d\d:?\d\d|Z)?$|\d+$|Unknown$|None$|$")
_SHAPES = {
    "JobID": re.compile(r"\d+(_(\d+|\[.*\]))?(\+\d+)?(\.\w+)?$"), "JobIDRaw": re.compile(r"\d+(\.\w+)?$"),
    "State": re.compile(r"[A-Z_]+\+?( by \d+)?$"), "Submit": _TIME, "Start": _TIME, "End": _TIME,
    "ElapsedRaw": re.compile(r"\d*$"), "ReqCPUS": re.compile(r"\d*$"), "AllocCPUS": re.compile(r"\d*$"),
}  # fmt: skip


class Mend:
    """Cuts a line with too many `|`: the spare ones belong to a user's own words."""

    def __init__(self, names: list[str], findings: Findings) -> None:
        self._names, self._findings = names, findings
        self._free = [i for i, name in enumerate(names) if name in FREE_TEXT]

    def __call__(self, line: int, text: str, expected: int) -> list[str] | None:
        cells = text.split("|")
        spare = len(cells) - expected
        if spare <= 0 or not self._free:
            return None
        ways = [cut for cut in self._cuts(cells, spare) if self._fits(cut)]
        if len(ways) != 1:
            return None
        self._findings.note(line, f"{spare} more '|' than columns, taken as part of the job's own words")
        return ways[0]

    def _cuts(self, cells: list[str], spare: int) -> Iterable[list[str]]:
        """Every way to give the spare separators to the columns of free text."""
        for owners in combinations_with_replacement(self._free, spare):
            cut, at = [], 0
            for i in range(len(self._names)):
                width = 1 + owners.count(i)
                cut.append("|".join(cells[at : at + width]))
                at += width
            yield cut

    def _fits(self, cut: list[str]) -> bool:
        cells = zip(self._names, cut, strict=True)
        return all(name not in _SHAPES or _SHAPES[name].match(cell) for name, cell in cells)
