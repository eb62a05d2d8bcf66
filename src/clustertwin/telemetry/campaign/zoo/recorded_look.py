"""A look at the processes of a recorded job: evidence <-> a line of a raw run, without paths and names of hosts.

What is kept is what `odd_rank.find` reads: it finds the same in a recorded look as in the evidence itself. Only the
sentence lacks the file that a process waits for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import orjson

from clustertwin.telemetry.diagnosis.evidence import (
    UNSEEN,
    USED,
    JobEvidence,
    ProcessEvidence,
    Stack,
    Waiting,
    parse_evidence,
    to_json,
)

#: Of a look; evidence with more says how many are left out.
MOST_PROCESSES = 64
NODE = "zoo"
MARK = "@"  # at the beginning of its line
_FOLDERS = re.compile(r"(?<=[(\[]).*/|[^\s(\[]*/")  # a frame has its file in brackets


@dataclass(frozen=True, slots=True)
class RecordedLook:
    """When a look began, how long it took, and what it saw."""

    at_s: float  # of the clock
    took_s: float
    evidence: JobEvidence | None  # None: there was no process, or the look failed


def kept(evidence: JobEvidence) -> JobEvidence:
    """The evidence without what would tell of the host and its users."""
    processes = tuple(_kept_of(process) for process in evidence.processes[:MOST_PROCESSES])
    return replace(
        evidence,
        job=NODE,
        nodes=(NODE,) * len(evidence.nodes),
        processes=processes,
        left_out=evidence.left_out + len(evidence.processes) - len(processes),
        cpu_s=round(evidence.cpu_s, 3),
        cgroup={name: value for name, value in evidence.cgroup.items() if name in (USED, UNSEEN)},
    )


def _kept_of(process: ProcessEvidence) -> ProcessEvidence:
    return replace(
        process,
        node=NODE,
        wchan="",
        waiting=process.waiting and Waiting(process.waiting.call),
        stack=_kept_stack(process.stack, bool(process.mpi_call)),
        kernel_stack=(),
        note=_without_folders(process.note),
    )


def _kept_stack(stack: Stack, in_mpi: bool) -> Stack:
    """Whole only of a rank in MPI: its place is compared with that of others. Otherwise the place alone counts."""
    native, python = stack.native, stack.python
    if not in_mpi:
        named = next((i for i, frame in enumerate(native) if not frame.startswith("?")), 0)
        native, python = native[: named + 1], python[:1]
    return Stack(tuple(map(_without_folders, native)), tuple(map(_without_folders, python)))


def _without_folders(text: str) -> str:
    """Names of files without their folders.

    >>> _without_folders("solve (/home/ada/run 7/solver.py:41)"), _without_folders("main [solver+0x1126]")
    ('solve (solver.py:41)', 'main [solver+0x1126]')
    """
    return _FOLDERS.sub("", text) if "/" in text else text


def line_of(look: RecordedLook) -> list[Any]:
    """The line of a raw run."""
    document = None if look.evidence is None else orjson.loads(to_json(kept(look.evidence)))
    return [MARK, round(look.at_s * 1000), round(look.took_s * 1000), document]


def parse_line(line: list[Any]) -> RecordedLook:
    """The inverse of `line_of`."""
    _, at_ms, took_ms, document = line
    evidence = None if document is None else parse_evidence(orjson.dumps(document), "look")
    return RecordedLook(at_ms / 1000, took_ms / 1000, evidence)
