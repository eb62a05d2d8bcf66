"""Which rank differs from the others: the evidence of a job -> one finding, in a sentence.

A hang is claimed only if every rank that can be seen waits, and no message passed between the looks. A rank that
computes, sleeps for a time or changes its place excludes a hang. A rank that a signal has stopped cannot be waited out
and is named at once. Nobody waits for a stopped process without a rank, such as an editor in the background, except the
shell that has started it. A process that a freezer or a debugger holds is held on purpose.

Processes that could not be read twice are not forgotten: a job that used CPU time in them works, and of a job that may
have done so nothing is claimed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from clustertwin.core.formatting import listed
from clustertwin.telemetry.diagnosis.evidence import UNSEEN, USED, JobEvidence, JobFinding, ProcessEvidence
from clustertwin.telemetry.diagnosis.kernel.system_calls import WAITS
from clustertwin.telemetry.diagnosis.program_order import POINT_TO_POINT, WaitingRanks, least_progressed
from clustertwin.telemetry.diagnosis.rank_state import STATES, WORK_S, caller

#: kind -> its meaning. Those in `HANGS` are hangs.
KINDS: dict[str, str] = {
    "stopped": "a signal has stopped a rank",
    "suspended": "processes are stopped, as by scontrol suspend or by a debugger",
    "blocked-io": "a rank is blocked on a file or a socket, and the others wait for it",
    "mismatch": "ranks wait in different collective calls",
    "lost-message": "a rank waits for a message that does not come",
    "stalled": "every rank waits in the same call, and no message passes",
    "gone": "a rank has ended, and the others wait for it",
    "spins": "a rank uses CPU time without working, and the others wait for it",
    "straggler": "the others wait for a rank that computes",
    "idle": "no process uses CPU time",
    "progress": "the job works",
    "unknown": "there is too little evidence",
}
HANGS = frozenset({"stopped", "blocked-io", "mismatch", "lost-message", "stalled", "gone", "spins"})


def find(evidence: JobEvidence) -> JobFinding:
    """The finding of a job."""
    # A word of a newer version says as little as "unknown".
    known = (process if process.does in STATES else replace(process, does="unknown") for process in evidence.processes)
    evidence = replace(evidence, processes=tuple(known))
    read = [process for process in evidence.processes if process.does not in ("ended", "unknown")]
    ended = _those(evidence.processes, "ended")
    if not read:
        return _unseen(read, evidence) or JobFinding("unknown", False, "No process of the job could be read twice.")
    stopped = _those(read, "stopped")
    if held := [process for process in stopped if process.state != "T"]:
        return _held(held, evidence)
    has_ranks = any(process.rank is not None for process in evidence.processes)
    hidden = None if has_ranks else _unseen(read, evidence)
    if stopped and len(stopped) == len(read) and hidden is None:
        who = "Every process of the job" if len(read) == _count(evidence) else "Every process that could be read"
        text = f"{who} is stopped, as scontrol suspend does."
        return JobFinding("suspended", False, text, sure=0.5, since_s=_since(stopped))
    if ranks := [process for process in stopped if process.rank is not None]:
        return _finding("stopped", ranks, read, evidence, 0.99)
    # A rank that could not be read may compute, and between nodes messages may pass that nothing here counts.
    is_partial = evidence.left_out or len(read) + len(ended) < len(evidence.processes)
    workers = _workers(read)
    if stopped and len(_those(workers, "stopped")) == len(workers):
        return hidden or _finding("stopped", stopped, workers, evidence, 0.6)
    seen = [process for process in workers if process.does != "stopped"]
    does = Counter(process.does for process in seen)
    if twice := _twice(evidence):
        text = f"Rank {twice[0]} is on {twice[1]} nodes: the job runs several MPI programs."
        return JobFinding("unknown", False, text)
    if len(evidence.nodes) < evidence.wanted_nodes:
        text = f"The evidence has {len(evidence.nodes)} of {evidence.wanted_nodes} nodes: {_counts(does)}."
        return JobFinding("unknown", False, text)
    if not does.keys() & {"waits-in-mpi", "blocked", "spins"}:
        return _quiet(read, seen, does, evidence)
    if hidden is not None and not does["computes"]:
        return hidden
    if ended and not has_ranks:
        return JobFinding("unknown", False, "A process ended while the evidence was taken.")
    if (evidence.size or 0) > 2 * len(evidence.processes):
        text = f"The evidence has {len(evidence.processes)} of {evidence.size} ranks: {_counts(does)}."
        return JobFinding("unknown", False, text)
    if gone := _missing(evidence, ended):
        if does.keys() <= {"waits-in-mpi", "blocked"} and evidence.messages_pass is not True:
            others = _others(_those(seen, "waits-in-mpi"), seen)
            text = f"{_ranks(gone, evidence)} ended, and {others}."
            return JobFinding("gone", True, _sentence(text), tuple(gone), 0.75 if is_partial else 0.95, None)
        return JobFinding("unknown", False, "A process ended while the evidence was taken.")
    if evidence.messages_pass:
        return JobFinding("progress", False, "Messages pass between the ranks: the job works.", sure=0.9)
    if does["starved"] and not does.keys() & {"communicates", "computes"}:
        return _starved(seen, evidence)
    if does.keys() & {"communicates", "sleeps"} or (does["computes"] and len(seen) == 1):
        return _not_a_hang(seen, does, evidence)
    sure = 0.97 if evidence.messages_pass is False and not is_partial else 0.75
    if does["computes"]:
        return _straggler(seen, evidence)
    if blocked := _those(seen, "blocked"):
        if len(blocked) == len(seen):  # no other process waits for them
            sure = 0.6 if len(seen) > 1 else 0.5
        return _finding("blocked-io", blocked, seen, evidence, sure)
    if spinning := _those(seen, "spins"):
        return _finding("spins", spinning, seen, evidence, 0.6)
    return _in_mpi(seen, evidence, sure)


def _workers(seen: list[ProcessEvidence]) -> list[ProcessEvidence]:
    """Without the shells and launchers that wait for a program which they have started, if other processes are left.

    Ranks stay: one that waits for a program holds up the others.
    """
    starters = [
        process
        for process in seen
        if process.rank is None and process.does == "sleeps" and process.waiting and process.waiting.call in WAITS
    ]
    return [process for process in seen if process not in starters] or seen


def _in_mpi(seen: Sequence[ProcessEvidence], evidence: JobEvidence, sure: float) -> JobFinding:
    """Every rank waits in MPI: the ranks that have done the least hold up the others."""
    places: dict[tuple[str, str], list[ProcessEvidence]] = {}
    for process in seen:
        places.setdefault((process.mpi_call, caller(process.stack)), []).append(process)
    if len(places) == 1:
        call = seen[0].mpi_call
        passed = "no message passed" if evidence.messages_pass is False else "whether messages pass is not known"
        size = max(evidence.size or 0, len(evidence.processes) + evidence.left_out)
        who = f"All {len(seen)} ranks" if len(seen) >= size else f"{len(seen)} of {size} ranks were seen, and all"
        text = f"{who} wait in {call}; {passed} in {evidence.window_s:.0f} s."
        return JobFinding("stalled", len(seen) > 1, text, sure=min(sure, 0.9) if len(seen) > 1 else 0.0)
    groups = list(places.values())
    suspects, told = least_progressed([WaitingRanks(group[0].mpi_call, group[0].stack, len(group)) for group in groups])
    odd = [process for number in suspects for process in groups[number]]
    if not told or 2 * len(odd) > len(seen):
        sure = min(sure, 0.8)  # it hangs, and the ranks that are named are only likely
    calls = {process.mpi_call for process in odd}
    kind = "lost-message" if calls <= POINT_TO_POINT else "mismatch"
    if len(suspects) == 1:
        return _finding(kind, odd, seen, evidence, sure)
    each = [f"{_ranks(_numbers(group), evidence)} in {group[0].mpi_call}{_place(group[0])}" for group in
            (groups[number] for number in suspects[:4])]  # fmt: skip
    text = f"The ranks wait for each other, and one of these holds up the others: {', or '.join(each)}."
    return JobFinding(kind, True, text, tuple(_numbers(odd)), sure)


def _straggler(seen: Sequence[ProcessEvidence], evidence: JobEvidence) -> JobFinding:
    computing = _those(seen, "computes")
    text = f"{_ranks(_numbers(computing), evidence)} {_verb(computing, 'computes', 'compute')}, and "
    text += f"{_others(_those(seen, 'waits-in-mpi'), seen)}."
    ranks = _numbers(computing) if 2 * len(computing) <= len(seen) else ()
    return JobFinding("straggler", False, _sentence(text), tuple(ranks), 0.5)


def _not_a_hang(seen: Sequence[ProcessEvidence], does: Counter[str], evidence: JobEvidence) -> JobFinding:
    sleeping = _those(seen, "sleeps")
    if sleeping and not does.keys() & {"communicates", "computes"} and 2 * len(sleeping) <= len(seen):
        text = f"{_ranks(_numbers(sleeping), evidence)} {_verb(sleeping, 'sleeps', 'sleep')}"
        text += f"{_place(sleeping[0])}, and {_others(_those(seen, 'waits-in-mpi'), seen)}."
        return JobFinding("straggler", False, _sentence(text), tuple(_numbers(sleeping)), 0.5, _since(sleeping))
    return JobFinding("progress", False, f"The ranks move: {_counts(does)}.", sure=0.5)


def _starved(seen: Sequence[ProcessEvidence], evidence: JobEvidence) -> JobFinding:
    """Processes wait for a CPU. A node that has too much to do is no fault of the job."""
    starved = _those(seen, "starved")
    numbers = _numbers(starved)
    who = _ranks(numbers, evidence) if numbers else _of_all(len(starved) + len(_unread(evidence)), evidence)
    text = f"{who} can run and used hardly any CPU time in {evidence.window_s:.0f} s"
    if waiting := _those(seen, "waits-in-mpi"):
        return JobFinding("straggler", False, _sentence(f"{text}, and {_others(waiting, seen)}."), tuple(numbers), 0.5)
    return JobFinding("progress", False, _sentence(f"{text}."), sure=0.5)


def _quiet(
    everyone: Sequence[ProcessEvidence], seen: Sequence[ProcessEvidence], does: Counter[str], evidence: JobEvidence
) -> JobFinding:
    """No process waits for a message or for a file. `everyone` has also the shells that wait for the others."""
    hidden = _unseen(everyone, evidence)
    computing = _those(seen, "computes")
    if (
        computing
        and not does["communicates"]
        and all(process.note and not process.stack.native for process in computing)
    ):
        text = f"{_sentence(_of_all(len(computing), evidence))} {_verb(computing, 'uses', 'use')} CPU time; "
        text += "without a stack, work and a wait in MPI look the same."
        return JobFinding("progress" if computing[0].rank is None else "unknown", False, text, sure=0.5)
    if does.keys() - {"sleeps", "starved"}:
        return JobFinding("progress", False, f"The job works: {_counts(does)}.", sure=0.8)
    if does["starved"] and not (hidden and hidden.kind == "progress"):
        return _starved(seen, evidence)
    if hidden is not None:
        return hidden
    used_s = max(evidence.cgroup.get(USED, 0) / 1e6, sum(process.cpu_s for process in everyone))
    text = "No process uses CPU time" if used_s < 0.005 else f"Only {_used(used_s, evidence)} was used"
    sleeping, count = len(_those(everyone, "sleeps")), _count(evidence)
    who = f"all {count}" if sleeping == count else f"{sleeping} of {count}"
    text += f": {who} sleep" if count > 1 else f": its only {'process' if seen[0].rank is None else 'rank'} sleeps"
    if len(places := {_place(process) for process in seen}) == 1 and (place := places.pop()):
        text += place if len(seen) == sleeping else f", {len(seen)} of them{place}"
    return JobFinding("idle", False, f"{text}.", sure=0.6, since_s=_since(seen))


def _held(held: Sequence[ProcessEvidence], evidence: JobEvidence) -> JobFinding:
    """A freezer stops a process in the state in which it finds it; a debugger shows as state t."""
    by = "a debugger" if held[0].state == "t" else "the freezer of a cgroup, as scontrol suspend does"
    text = f"{_of_all(len(held), evidence)} {_verb(held, 'is', 'are')} stopped by {by}."
    return JobFinding("suspended", False, _sentence(text), sure=0.5, since_s=_since(held))


def _unseen(seen: Sequence[ProcessEvidence], evidence: JobEvidence) -> JobFinding | None:
    """What follows from processes that were not seen twice: the job works in them, or may do so. None: nothing."""
    shown_s = sum(process.cpu_s for process in evidence.processes)
    used_s = evidence.cgroup.get(USED, 0) / 1e6
    if used_s - shown_s > max(WORK_S * len(evidence.nodes), 0.1 * shown_s):
        text = f"The job works: it used {_used(used_s, evidence)}, in programs that were not seen twice."
        return JobFinding("progress", False, text, sure=0.8)
    if runnable := _unread(evidence):
        does = _verb(runnable, "it does", "they do")
        text = f"{_of_all(len(runnable), evidence)} can run, and what {does} could not be read."
        return JobFinding("unknown", False, _sentence(text))
    ended = _those(evidence.processes, "ended")
    lost = evidence.cgroup.get(UNSEEN, 0) if USED in evidence.cgroup else evidence.left_out + len(ended)
    if lost or _those(evidence.processes, "unknown"):
        text = f"{_of_all(len(seen), evidence)} could be read twice, and others may work."
        return JobFinding("unknown", False, _sentence(text))
    return None


def _unread(evidence: JobEvidence) -> list[ProcessEvidence]:
    """Processes that can run, and get too little CPU time for a look at their stacks."""
    return [process for process in evidence.processes if process.does == "unknown" and process.state == "R"]


def _used(used_s: float, evidence: JobEvidence) -> str:
    return f"{used_s:.{1 if used_s >= 1 else 2}f} s of CPU time in {evidence.window_s:.{evidence.window_s < 1:d}f} s"


def _of_all(number: int, evidence: JobEvidence) -> str:
    count = _count(evidence)
    if number == count:
        return "the only process" if count == 1 else f"all {count} processes"
    return f"{number} of {count} processes"


def _count(evidence: JobEvidence) -> int:
    """The processes that the job had at the end, as far as they are known."""
    return len(evidence.processes) - len(_those(evidence.processes, "ended")) + evidence.left_out


def _finding(
    kind: str, odd: Sequence[ProcessEvidence], seen: Sequence[ProcessEvidence], evidence: JobEvidence, sure: float
) -> JobFinding:
    since_s = _since(odd)
    when = f" since {_clock(since_s, evidence.taken_s)}" if since_s is not None else ""
    numbers = _numbers(odd)
    alone = f"process {odd[0].pid}" if len(odd) == 1 else f"{len(odd)} processes"
    who = _ranks(numbers, evidence) if numbers else alone
    if len(evidence.nodes) > 1:
        who += f" on {', '.join(sorted({process.node for process in odd})[:4])}"
    text = f"{who} {_verb(odd, 'is', 'are')} {_action(kind, odd[0])}{when}"
    others = [process for process in seen if process not in odd]
    if waiting := _those(others, "waits-in-mpi"):
        text += f", and {_others(waiting, seen)}"
    return JobFinding(kind, kind in HANGS, _sentence(f"{text}."), tuple(numbers), sure, since_s)


def _action(kind: str, process: ProcessEvidence) -> str:
    if kind == "stopped":
        return "stopped by a signal"
    if kind == "blocked-io":
        if process.waiting is None:
            return f"blocked in the kernel ({process.wchan or 'state D'})"
        target = f" on {process.waiting.target}" if process.waiting.target else ""
        return f"in {process.waiting.call}(){target}"
    if kind == "spins":
        return f"using CPU time without writing to memory{_place(process)}"
    return f"in {process.mpi_call}{_place(process)}"


def _place(process: ProcessEvidence) -> str:
    where = caller(process.stack)
    return f" at {where}" if where else ""


def _others(waiting: Sequence[ProcessEvidence], seen: Sequence[ProcessEvidence]) -> str:
    """`the others wait in MPI_Allreduce`, or what most of them do."""
    calls = Counter(process.mpi_call for process in waiting).most_common(2)
    if not calls:
        return "the others wait"
    names = " or ".join(name for name, _ in calls)
    return (
        f"{len(waiting)} of {len(seen)} {_verb(waiting, 'waits', 'wait')} in {names}"
        if len(waiting) < len(seen) - 1
        else f"the others wait in {names}"
    )


def _twice(evidence: JobEvidence) -> tuple[int, int] | None:
    """A rank that several processes have, and how many: they do not belong to one program."""
    ranks = Counter(process.rank for process in evidence.processes if process.rank is not None)
    return next(((rank, count) for rank, count in ranks.items() if count > 1), None)


def _missing(evidence: JobEvidence, ended: Sequence[ProcessEvidence]) -> list[int]:
    """Ranks that ended, or that the job should have and no node has. Evidence that was cut has no missing ranks."""
    if evidence.left_out or evidence.refused:
        return []
    have = {process.rank for process in evidence.processes} - {process.rank for process in ended}
    return [rank for rank in range(evidence.size or 0) if rank not in have]


def _those(processes: Sequence[ProcessEvidence], does: str) -> list[ProcessEvidence]:
    return [process for process in processes if process.does == does]


def _numbers(processes: Sequence[ProcessEvidence]) -> list[int]:
    return sorted(process.rank for process in processes if process.rank is not None)


def _ranks(numbers: Sequence[int], evidence: JobEvidence) -> str:
    size = evidence.size or len(evidence.processes)
    if not numbers:
        return "a process"
    return f"rank{'s' if len(numbers) > 1 else ''} {listed([str(number) for number in numbers], 8)} of {size}"


def _since(processes: Sequence[ProcessEvidence]) -> float | None:
    known = [process.since_s for process in processes if process.since_s is not None]
    return min(known) if known else None


def _clock(at_s: float, now_s: float) -> str:
    """A time in UTC, as messages have it; with its date if it was on another day.

    >>> _clock(0.0, 60.0), _clock(0.0, 1e5)
    ('00:00:00 UTC', '1970-01-01 00:00:00 UTC')
    """
    at, now = (datetime.fromtimestamp(seconds, UTC) for seconds in (at_s, now_s))
    return f"{at:%H:%M:%S} UTC" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _verb(processes: Sequence[ProcessEvidence], one: str, many: str) -> str:
    return one if len(processes) == 1 else many


#: States that are no verb, for one process and for several.
_DOING = {
    "blocked": ("is blocked", "are blocked"),
    "starved": ("can run", "can run"),
    "stopped": ("is stopped", "are stopped"),
    "unknown": ("is unknown", "are unknown"),
    "waits-in-mpi": ("waits in MPI", "wait in MPI"),
}


def _counts(does: Counter[str]) -> str:
    """What the processes do, in words.

    >>> _counts(Counter({"computes": 1, "communicates": 3, "blocked": 2}))
    'of 6 processes, 2 are blocked, 3 communicate, 1 computes'
    >>> _counts(Counter({"communicates": 1}))
    'its process communicates'
    """
    parts = [(n, _DOING.get(word, (word, word.removesuffix("s")))[n > 1]) for word, n in sorted(does.items())]
    if does.total() == 1:
        return f"its process {parts[0][1]}"
    return f"of {does.total()} processes, {', '.join(f'{n} {verb}' for n, verb in parts)}"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
