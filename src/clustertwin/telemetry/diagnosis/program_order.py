"""Which ranks have done the least: the places where the ranks of a job wait -> those that hold up the others.

Two ranks that run the same program share the outer frames of their stacks. Where they part, inside one function, the
smaller line, or the lower address of native code, is the earlier one. A program iterates, so that the places lie on a
circle, and a rank at an earlier place may be an iteration ahead.

Where the circle begins follows from calls such as MPI_Allreduce, which no rank leaves before all have entered it. The
rank that has done the least is followed by all others, and none of them is beyond ranks that still wait in such a call.
A rank that waits in a collective call while all others are elsewhere is itself the exception, which is less likely than
a message that does not come.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cmp_to_key

from clustertwin.telemetry.diagnosis.evidence import Stack

_PYTHON = re.compile(r"^(?P<function>.*) \((?P<file>.*):(?P<place>\d+)\)$")
_NATIVE = re.compile(r"^(?P<function>\S+) \[(?P<file>.*)\+0x(?P<place>[0-9a-f]+)\]$")


POINT_TO_POINT = frozenset(
    {"MPI_Recv", "MPI_Send", "MPI_Ssend", "MPI_Rsend", "MPI_Bsend", "MPI_Mrecv", "MPI_Sendrecv", "MPI_Sendrecv_replace",
     "MPI_Probe", "MPI_Mprobe", "MPI_Wait", "MPI_Waitall", "MPI_Waitany", "MPI_Waitsome"}
)  # fmt: skip
#: Calls that no rank leaves before every rank has entered. A broadcast or a reduction may be left earlier.
SYNCHRONIZING = frozenset(
    {"MPI_Allreduce", "MPI_Barrier", "MPI_Allgather", "MPI_Allgatherv", "MPI_Alltoall", "MPI_Alltoallv",
     "MPI_Alltoallw", "MPI_Reduce_scatter", "MPI_Reduce_scatter_block", "MPI_Comm_split", "MPI_Comm_dup",
     "MPI_Win_fence", "MPI_File_open", "MPI_File_close"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WaitingRanks:
    """Ranks that wait in the same call at the same place."""

    call: str
    stack: Stack
    count: int


def least_progressed(groups: Sequence[WaitingRanks]) -> tuple[list[int], bool]:
    """The numbers of the groups that may have done the least, and whether the places tell which one it is."""
    pairs = [(one, other) for i, one in enumerate(groups) for other in groups[:i]]
    if len(groups) > 2 and any(order(one.stack, other.stack) == 0 for one, other in pairs):
        return _least_common(groups), False
    costs = [_cost(number, groups) for number in range(len(groups))]
    likely = [number for number, cost in enumerate(costs) if cost == min(costs)]
    fewest = _fewest(likely, groups)
    return fewest, len(fewest) == 1


def _cost(number: int, groups: Sequence[WaitingRanks]) -> float:
    """The cost of a group as the cause: ranks that left a synchronizing call too early, and 0.5 in a collective."""
    in_order = sorted(groups, key=cmp_to_key(_by_place))
    at = in_order.index(groups[number])
    beyond, synchronized = 0, False
    for other in (*in_order[at + 1 :], *in_order[:at]):
        beyond += other.count if synchronized else 0
        synchronized = synchronized or other.call in SYNCHRONIZING
    return beyond + (0.5 if groups[number].call not in POINT_TO_POINT else 0.0)


def _by_place(one: WaitingRanks, other: WaitingRanks) -> int:
    return order(one.stack, other.stack)


def _least_common(groups: Sequence[WaitingRanks]) -> list[int]:
    """Without an order: a rank in another collective call, before a rank that waits for a neighbour, its victim."""
    most = max(group.count for group in groups)
    common = [number for number, group in enumerate(groups) if group.count == most]
    others = [number for number in range(len(groups)) if len(common) > 1 or number != common[0]]
    collective = [number for number in others if groups[number].call not in POINT_TO_POINT]
    return _fewest(collective or others, groups)


def _fewest(numbers: list[int], groups: Sequence[WaitingRanks]) -> list[int]:
    fewest = min(groups[number].count for number in numbers)
    return [number for number in numbers if groups[number].count == fewest]


def order(one: Stack, other: Stack) -> int:
    """-1 if `one` is earlier, 1 if it is later, 0 if the stacks do not say.

    >>> order(Stack(python=("fail (a.py:9)", "main (a.py:3)")), Stack(python=("work (a.py:20)", "main (a.py:4)")))
    -1
    """
    for mine, its in zip(_places(one), _places(other), strict=False):
        if mine[:2] != its[:2]:
            return 0
        if mine[0] == "?" and mine != its:
            return 0  # two functions without names may be any two functions
        if mine[2] != its[2]:
            return -1 if mine[2] < its[2] else 1
    return 0


def _places(stack: Stack) -> list[tuple[str, str, int]]:
    """(function, file, place) of the frames of the program itself, the outermost first."""
    frames, pattern, base = (stack.python, _PYTHON, 10) if stack.python else (stack.native, _NATIVE, 16)
    matches = [pattern.match(frame) for frame in reversed(frames)]
    return [(match["function"], match["file"], int(match["place"], base)) for match in matches if match]
