"""What reading a log gives: its jobs, and a finding for every line that was not simply taken as it stood."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.errors import TraceError
from clustertwin.workload.jobs import Jobs

#: `noted`: as the format means it, worth saying. `repaired`, `dropped`: a fault, which a strict reader refuses.
Fate = Literal["noted", "repaired", "dropped"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to say about one line (or about the whole file, where there is no line)."""

    line: int | None
    reason: str
    fate: Fate
    remedy: str = ""  # what a lenient reader did about it


@dataclass(frozen=True, slots=True)
class Reading:
    """A log as it was read. `as_written` holds the columns that had to be rounded, as the file had them."""

    jobs: Jobs
    format: str
    findings: tuple[Finding, ...] = ()
    as_written: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    @property
    def faults(self) -> tuple[Finding, ...]:
        return tuple(found for found in self.findings if found.fate != "noted")

    def summary(self) -> str:
        """One line: `15000 jobs; 3 lines repaired, 1 dropped (first: line 41: 17 fields, SWF has 18)`."""
        words = f"{len(self.jobs)} jobs"
        if faults := self.faults:
            dropped = sum(found.fate == "dropped" for found in faults)
            first = faults[0]
            where = f"line {first.line}: " if first.line is not None else ""
            words += f"; {len(faults) - dropped} repairs, {dropped} lines dropped (first: {where}{first.reason})"
        return words


class Findings:
    """Collects while a file is read; `settle` refuses the file if it may not have faults."""

    def __init__(self, where: object) -> None:
        self.where = where
        self.found: list[Finding] = []

    def note(self, line: int | None, reason: str) -> None:
        self.found.append(Finding(line, reason, "noted"))

    def repair(self, line: int | None, reason: str, remedy: str) -> None:
        self.found.append(Finding(line, reason, "repaired", remedy))

    def drop(self, line: int | None, reason: str) -> None:
        self.found.append(Finding(line, reason, "dropped"))

    def settle(self, lenient: bool) -> tuple[Finding, ...]:
        """All findings in the order of the lines; strict: the first fault is raised, the others are counted."""
        ordered = tuple(sorted(self.found, key=lambda found: found.line or 0))
        faults = [found for found in ordered if found.fate != "noted"]
        if faults and not lenient:
            more = f" (and {len(faults) - 1} more faults; --lenient mends and lists them)" if faults[1:] else ""
            raise TraceError(self.where, faults[0].reason + more, faults[0].line)
        return ordered
