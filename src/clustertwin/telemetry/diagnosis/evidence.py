"""The nouns of evidence: what was seen of each process of a job, and what follows from it, as bounded JSON.

Evidence has no environment and no arguments of a process. It has names of functions and files, and paths that a
process waits for. Texts are cut to `LONGEST_TEXT` characters, and a document never exceeds `MAX_BYTES`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from clustertwin.core.errors import InputError

#: The version of the document, and those that can be read. Since 2 a process may be `starved`, which an older service
#: must not take for a process that waits.
FORMAT, READABLE = 2, (1, 2)
#: Keys in `JobEvidence.cgroup`: CPU time of the job between the looks, and processes whose part of it is not known.
USED, UNSEEN = "used_usec", "unseen"
MAX_BYTES = 256 * 1024
LONGEST_TEXT = 200
MOST_FRAMES = 40
MOST_PROCESSES = 512
MOST_RANKS = 10_000_000
EARLIEST_S, LATEST_S = -6e10, 1e11  # in the years 68 and 5138
MOST_COUNTED = 1 << 62


@dataclass(frozen=True, slots=True)
class Waiting:
    """The system call that a process is blocked in, and the file or socket that it waits for."""

    call: str  # "read"; "syscall 999" for one without a name here
    target: str = ""  # a path, "socket to 10.0.0.7:4000", "pipe:[123]"; empty if the call has no descriptor


@dataclass(frozen=True, slots=True)
class Stack:
    """The functions of one thread, the innermost first, from native code and from Python."""

    native: tuple[str, ...] = ()  # an unnamed function is "?"
    python: tuple[str, ...] = ()  # "allreduce (solver.py:41)"


@dataclass(frozen=True, slots=True)
class ProcessEvidence:
    """One process over the time between two looks."""

    node: str
    pid: int
    rank: int | None
    does: str  # one of `rank_state.STATES`
    state: str  # the kernel's letter at the last look; "" for a process that has ended
    wchan: str = ""  # the kernel function that it sleeps in
    waiting: Waiting | None = None
    mpi_call: str = ""  # "MPI_Allreduce", if it is inside one
    stack: Stack = Stack()
    kernel_stack: tuple[str, ...] = ()
    since_s: float | None = None  # Unix time at which it ran last, if it is blocked or stopped
    cpu_s: float = 0.0  # used between the looks
    faults: int = 0  # page faults between the looks
    io_bytes: int = 0  # read and written between the looks
    stopped_ms: float = 0.0  # how long taking the evidence stopped it, in total
    note: str = ""  # why something is missing


@dataclass(frozen=True, slots=True)
class JobFinding:
    """What the processes of a job do together. A `hang` needs every rank to wait and no message to pass."""

    kind: str  # one of `odd_rank.KINDS`
    hang: bool
    sentence: str
    ranks: tuple[int, ...] = ()  # those that differ from the others, if any do
    sure: float = 0.0  # 0 … 1: how far the evidence excludes a healthy job
    since_s: float | None = None


@dataclass(frozen=True, slots=True)
class JobEvidence:
    """The processes of one job on one node, or on several after `merge`."""

    job: str
    nodes: tuple[str, ...]
    taken_s: float
    window_s: float  # between the two looks
    processes: tuple[ProcessEvidence, ...]
    size: int | None = None  # ranks of the job, from its environment
    wanted_nodes: int = 1  # nodes of the job; evidence of fewer nodes cannot show that every rank waits
    messages_pass: bool | None = None  # shared memory or TCP traffic of the ranks changed; None: neither would tell
    refused: int = 0  # processes that belong to another user or may not be read
    left_out: int = 0  # processes beyond the limit
    cpu_s: float = 0.0  # that taking the evidence cost
    cgroup: Mapping[str, int] = field(default_factory=dict)  # changes between the looks: oom_kill, used_usec, …


def clean(text: str, longest: int = LONGEST_TEXT) -> str:
    """Printable characters only, cut in the middle: both ends of a path tell more than its middle."""
    text = "".join(char if char.isprintable() else " " for char in text)
    half = longest // 2
    return text if len(text) <= longest else f"{text[: half - 1]}…{text[len(text) - half :]}"


def to_json(evidence: JobEvidence) -> bytes:
    """The document. If it is too large, stacks are shortened, then dropped, and then processes are left out."""
    kept = replace(evidence, processes=evidence.processes[:MOST_PROCESSES])
    kept = replace(kept, left_out=_limited(evidence.left_out + len(evidence.processes) - len(kept.processes)))
    frames = MOST_FRAMES
    while len(data := _document(_shortened(kept, frames))) > MAX_BYTES:
        if not frames:  # a process without frames still has texts of its user
            if not kept.processes:  # names of nodes and counters alone: nobody sends so many in earnest
                kept = replace(kept, nodes=kept.nodes[:1], cgroup={})
            fewer = kept.processes[: len(kept.processes) // 2]
            left_out = _limited(kept.left_out + len(kept.processes) - len(fewer))
            kept = replace(kept, processes=fewer, left_out=left_out)
        frames = 8 if frames > 8 else 0
    return data


def parse_evidence(data: bytes, where: object = "evidence") -> JobEvidence:
    """The inverse of `to_json`. What another node sent is checked before it is used."""
    if len(data) > MAX_BYTES:
        raise InputError(where, f"{len(data)} bytes of evidence; the limit is {MAX_BYTES}")
    try:
        plain = json.loads(data)
        if (version := plain.pop("format")) not in READABLE:
            raise ValueError(f"format {clean(str(version), 20)} is not supported; this version reads 1 to {FORMAT}")
        processes = tuple(_process(entry) for entry in plain.pop("processes"))
        passes, size = plain.pop("messages_pass"), plain.pop("size")
        if passes not in (True, False, None) or not isinstance(plain["nodes"], list):
            raise ValueError("a field has the wrong type")
        counters = {clean(str(name)): _whole(value) for name, value in list(plain.pop("cgroup").items())[:64]}
        return JobEvidence(
            job=clean(str(plain.pop("job"))),
            nodes=tuple(clean(str(node)) for node in plain.pop("nodes")[:MOST_PROCESSES]),
            taken_s=_real(plain.pop("taken_s")),
            window_s=_real(plain.pop("window_s")),
            processes=processes,
            size=None if size is None else _whole(size, MOST_RANKS),
            wanted_nodes=_whole(plain.pop("wanted_nodes"), MOST_RANKS),
            messages_pass=passes,
            refused=_whole(plain.pop("refused")),
            left_out=_whole(plain.pop("left_out")),
            cpu_s=_real(plain.pop("cpu_s")),
            cgroup=counters,
            **plain,
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError(where, f"this is not evidence: {error}") from error


def merge(parts: list[JobEvidence], wanted_nodes: int = 0) -> JobEvidence:
    """The evidence of one job from several nodes, in the order of its ranks."""
    first = parts[0]
    sizes = {part.size for part in parts if part.size is not None}
    processes = sorted((p for part in parts for p in part.processes), key=lambda p: (p.rank is None, p.rank or 0))
    passes = [part.messages_pass for part in parts]
    cgroup: dict[str, int] = {}
    for part in parts:
        for name, value in part.cgroup.items():
            cgroup[name] = _limited(cgroup.get(name, 0) + value)
    for part in parts:
        if USED in cgroup and USED not in part.cgroup:  # of an older helper: what ended there may have worked
            unseen = part.left_out + sum(process.does == "ended" for process in part.processes)
            cgroup[UNSEEN] = _limited(cgroup.get(UNSEEN, 0) + unseen)
    return replace(
        first,
        nodes=tuple(node for part in parts for node in part.nodes),
        taken_s=max(part.taken_s for part in parts),
        window_s=min(part.window_s for part in parts),
        processes=tuple(processes),
        size=sizes.pop() if len(sizes) == 1 else None,  # nodes that do not agree have started several programs
        wanted_nodes=max(wanted_nodes, *(part.wanted_nodes for part in parts)),
        messages_pass=True if True in passes else None if None in passes else False,
        refused=_limited(sum(part.refused for part in parts)),
        left_out=_limited(sum(part.left_out for part in parts)),
        cpu_s=min(max(sum(part.cpu_s for part in parts), 0.0), LATEST_S / 2),
        cgroup=cgroup,
    )


def _limited(count: int) -> int:
    """A sum of counts, as large as a document may have them: `parse_evidence` must be able to read it again."""
    return max(min(count, MOST_COUNTED), -MOST_COUNTED)


def _document(evidence: JobEvidence) -> bytes:
    return json.dumps({"format": FORMAT, **asdict(evidence)}, separators=(",", ":")).encode()


def _shortened(evidence: JobEvidence, frames: int) -> JobEvidence:
    return replace(
        evidence,
        processes=tuple(
            replace(
                process,
                stack=Stack(process.stack.native[:frames], process.stack.python[:frames]),
                kernel_stack=process.kernel_stack[:frames],
            )
            for process in evidence.processes
        ),
    )


def _process(entry: dict[str, Any]) -> ProcessEvidence:
    waiting = entry.pop("waiting")
    stack = entry.pop("stack")
    texts: dict[str, Any] = {
        key: clean(str(entry.pop(key))) for key in ("node", "does", "state", "wchan", "mpi_call", "note")
    }
    kernel = tuple(clean(str(frame)) for frame in entry.pop("kernel_stack")[:MOST_FRAMES])
    rank, since_s = entry.pop("rank"), entry.pop("since_s")
    return ProcessEvidence(
        **texts,
        pid=_whole(entry.pop("pid")),
        rank=None if rank is None else _whole(rank, MOST_RANKS),
        waiting=None if waiting is None else Waiting(clean(str(waiting["call"])), clean(str(waiting["target"]))),
        stack=Stack(_frames(stack["native"]), _frames(stack["python"])),
        kernel_stack=kernel,
        since_s=None if since_s is None else _real(since_s),
        cpu_s=_real(entry.pop("cpu_s")),
        faults=_whole(entry.pop("faults")),
        io_bytes=_whole(entry.pop("io_bytes")),
        stopped_ms=_real(entry.pop("stopped_ms")),
        **entry,
    )


def _frames(names: list[Any]) -> tuple[str, ...]:
    return tuple(clean(str(name)) for name in names[:MOST_FRAMES])


def _whole(value: Any, most: int = MOST_COUNTED) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > most:
        raise ValueError(f"{str(value)[:20]} is not a whole number of a reasonable size")
    return value


def _real(value: Any) -> float:
    """A number of seconds, also since 1970; nothing that a clock cannot show."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not EARLIEST_S < value < LATEST_S:
        raise ValueError(f"{str(value)[:20]} is not a number of seconds")
    return float(value)
