"""Findings: what a reader notes, repairs or drops, each with its line; and the parsed log that carries them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import TraceError
from clustertwin.workload.jobs import Jobs

#: `noted` is information. `repaired` and `dropped` are faults: a strict reader refuses the file.
Fate = Literal["noted", "repaired", "dropped"]

#: A finding takes 200 bytes, and a line of two bytes is enough for one: a megabyte of gzip would fill the memory.
MOST_FINDINGS = 2_000_000


@dataclass(frozen=True, slots=True)
class LogFinding:
    """One statement about one line, or about the whole file if `line` is None."""

    line: int | None
    reason: str
    fate: Fate
    remedy: str = ""  # how a lenient reader repaired it


@dataclass(frozen=True, slots=True)
class ParsedLog:
    """The jobs of a file and the findings about it.

    `as_written` holds the original values of columns that had to be rounded.
    """

    jobs: Jobs
    format: str
    findings: tuple[LogFinding, ...] = ()
    as_written: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    @property
    def faults(self) -> tuple[LogFinding, ...]:
        return tuple(finding for finding in self.findings if finding.fate != "noted")

    def summary(self) -> str:
        """One line: `15000 jobs; 3 repairs, 1 lines dropped (first: line 41: 17 fields, SWF has 18)`."""
        text = f"{len(self.jobs)} jobs"
        if faults := self.faults:
            dropped = sum(fault.fate == "dropped" for fault in faults)
            first = faults[0]
            where = f"line {first.line}: " if first.line is not None else ""
            text += f"; {len(faults) - dropped} repairs, {dropped} lines dropped (first: {where}{first.reason})"
        return text


class LogFindings:
    """Collects findings while a file is read. `settle` ends the collection."""

    def __init__(self, where: object) -> None:
        self.where = where
        self._findings: list[LogFinding] = []

    def note(self, line: int | None, reason: str) -> None:
        self._add(LogFinding(line, reason, "noted"))

    def repair(self, line: int | None, reason: str, remedy: str) -> None:
        self._add(LogFinding(line, reason, "repaired", remedy))

    def drop(self, line: int | None, reason: str) -> None:
        self._add(LogFinding(line, reason, "dropped"))

    def _add(self, finding: LogFinding) -> None:
        if len(self._findings) >= MOST_FINDINGS:
            raise TraceError(
                self.where, f"more than {MOST_FINDINGS:,} faults; the last: {finding.reason}", finding.line
            )
        self._findings.append(finding)

    def settle(self, lenient: bool) -> tuple[LogFinding, ...]:
        """All findings in the order of their lines. A strict reader raises the first fault and counts the others."""
        ordered = tuple(sorted(self._findings, key=lambda finding: finding.line or 0))
        faults = [finding for finding in ordered if finding.fate != "noted"]
        if faults and not lenient:
            others = f"{len(faults) - 1} more fault{'s' if len(faults) > 2 else ''}"
            more = f" (and {others}; --lenient repairs or drops them and lists each one)"
            raise TraceError(self.where, faults[0].reason + (more if faults[1:] else ""), faults[0].line)
        return ordered
