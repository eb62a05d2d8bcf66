"""Which job a slot of a recording holds: assignments <-> jobs.jsonl, one JSON object in each line, synced line by line.

The channels of jobs are stored in slots, because jobs come and go and an array has fixed rows. An assignment counts
from its second on until the next one of the same slot. A slot whose job is not running is used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

import orjson

from clustertwin.core import files
from clustertwin.core.errors import RecordingError
from clustertwin.core.foreign_files import LATEST_S, read_recorded

#: Jobs of a node whose channels are recorded at the same time. Each takes 36 KB of memory while an hour is written.
SLOTS = 8
#: A slot keeps its job for at least this long: a node whose jobs change every second must not fill the disk.
HELD_S = 30
#: An assignment has about 80 bytes.
MOST_BYTES = 1 << 28
#: Bytes that a recorder keeps: the older half of a longer file is dropped, without what the slots hold now.
MOST_KEPT_BYTES = 1 << 27


@dataclass(frozen=True, slots=True)
class Assignment:
    node: str
    slot: int
    job: str
    start_s: int


class JobSlots:
    """The slots of every node while a recording is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._jobs: dict[str, dict[int, str]] = {}  # node -> slot -> job
        self._heard_s: dict[tuple[str, int], int] = {}
        self._begun_s: dict[tuple[str, int], int] = {}  # since when a slot has its job
        assignments = read(path)
        if path.is_file() and not path.read_bytes().endswith(b"\n"):  # a crash interrupted the last line
            files.write(path, b"".join(map(_line, assignments)))
        for assignment in assignments:
            self._jobs.setdefault(assignment.node, {})[assignment.slot] = assignment.job

    def place(self, node: str, jobs: Sequence[str], start_s: int) -> dict[str, int]:
        """The slot of each of these jobs, which run now; jobs beyond the slots are left out.

        A new assignment is on disk when this returns.
        """
        here = self._jobs.setdefault(node, {})
        slots = {job: slot for slot, job in here.items() if job in jobs}
        free = sorted(set(range(SLOTS)) - set(slots.values()), key=lambda slot: self._heard_s.get((node, slot), 0))
        free = [slot for slot in free if not 0 <= start_s - self._begun_s.get((node, slot), -HELD_S) < HELD_S]
        new = list(zip([job for job in dict.fromkeys(jobs) if job not in slots], free, strict=False))
        if new:
            files.append(self._path, b"".join(_line(Assignment(node, slot, job, start_s)) for job, slot in new))
            shorten(self._path)
        for job, slot in new:
            here[slot], self._begun_s[node, slot] = job, start_s
            slots[job] = slot
        for slot in slots.values():
            self._heard_s[node, slot] = start_s
        return slots


def read(path: Path) -> list[Assignment]:
    """The assignments in the order of their starts; empty if there is no file."""
    data = read_recorded(path, MOST_BYTES)
    return [] if data is None else parse(data, path)


def parse(data: bytes, where: object = "jobs") -> list[Assignment]:
    """The assignments of complete lines."""
    assignments = []
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
        try:
            assignment = Assignment(**orjson.loads(line))
            if [type(value) for value in astuple(assignment)] != [str, int, str, int]:
                raise TypeError("node and job must be texts, slot and start_s whole numbers")
            if not 0 <= assignment.slot < SLOTS or abs(assignment.start_s) > LATEST_S:
                raise ValueError("there is no such slot or second")
            assignments.append(assignment)
        except (ValueError, TypeError) as error:
            raise RecordingError(where, f"not an assignment of a job ({error})", number) from error
    return sorted(assignments, key=lambda assignment: assignment.start_s)


def with_ends(assignments: Sequence[Assignment]) -> list[tuple[Assignment, int | None]]:
    """Each assignment, with the start of the next one of its slot; None if there is none."""
    ended: list[tuple[Assignment, int | None]] = []
    next_s: dict[tuple[str, int], int] = {}
    for assignment in reversed(assignments):
        slot = assignment.node, assignment.slot
        ended.append((assignment, next_s.get(slot)))
        next_s[slot] = assignment.start_s
    return ended[::-1]


def shorten(path: Path) -> None:
    """Drop the older half of a file that is too long, except the last assignment in it of each slot."""
    if path.stat().st_size > MOST_KEPT_BYTES:
        assignments = read(path)
        older, newer = assignments[: len(assignments) // 2], assignments[len(assignments) // 2 :]
        held = {(assignment.node, assignment.slot): assignment for assignment in older}
        files.write(path, b"".join(map(_line, (*held.values(), *newer))))


def prune(path: Path, before_s: int) -> None:
    """Remove the assignments that were replaced before this second."""
    assignments = read(path)
    kept = [each for each, end_s in with_ends(assignments) if end_s is None or end_s > before_s]
    if len(kept) < len(assignments):
        files.write(path, b"".join(map(_line, kept)))


def _line(assignment: Assignment) -> bytes:
    return orjson.dumps(asdict(assignment), option=orjson.OPT_APPEND_NEWLINE)
