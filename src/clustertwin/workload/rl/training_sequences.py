"""Training sequences: job records without the held-out jobs -> short random sequences of jobs, for each machine.

A sequence is a chain of blocks. Each block is cut from the usable jobs and keeps its own gaps between submissions. A
log of a few thousand jobs therefore gives many more sequences than it has windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.workload.simulator.machine_state import Records
from clustertwin.workload.simulator.simulate_log import SchedulingRules


@dataclass(frozen=True, slots=True)
class OtherMachine:
    """The log of a machine of another size."""

    records: Records
    procs: int


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Job records to train on, without the ranges of jobs `held_out` (first, one past the last), and further logs.

    The jobs of `others` are scheduled on their own machines.
    """

    records: Records
    held_out: Sequence[tuple[int, int]] = ()
    further: Sequence[Records] = ()
    others: Sequence[OtherMachine] = ()


@dataclass(frozen=True, slots=True)
class SequencePool:
    """The contiguous parts of the logs that sequences are drawn from."""

    parts: tuple[Records, ...]
    length: int  # jobs in a sequence
    block: tuple[int, int]  # jobs in the shortest and in the longest block

    def draw(self, rng: np.random.Generator) -> Records:
        """One sequence of `length` jobs."""
        blocks: list[Records] = []
        missing, time_s = self.length, 1.0
        while missing > 0:
            size = min(missing, int(rng.integers(self.block[0], self.block[1] + 1)))
            starts = np.array([max(0, len(part) - size + 1) for part in self.parts])
            part = self.parts[rng.choice(len(starts), p=starts / starts.sum())]
            first = int(rng.integers(0, len(part) - size + 1))
            block = part[first : first + size].copy()
            # The gap before the block is the gap before its first job, if that job has a predecessor.
            gap_s = block["submit_s"][0] - part["submit_s"][max(first - 1, 0)]
            block["submit_s"] += time_s + gap_s - block["submit_s"][0]
            time_s = float(block["submit_s"][-1])
            blocks.append(block)
            missing -= size
        return np.concatenate(blocks)


def sequence_pool(data: TrainingData, length: int = 1024) -> SequencePool:
    """A pool of sequences of `length` jobs."""
    records = data.records
    usable = np.ones(len(records), dtype=bool)
    for first, last in data.held_out:
        usable[first:last] = False
    edges = np.flatnonzero(np.diff(usable, prepend=False, append=False))
    parts = (*(records[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)), *data.further)
    longest = max((len(part) for part in parts), default=0)
    if longest < min(length, 64):
        raise SettingsError(f"only {longest} consecutive jobs are left to train on; hold out fewer jobs")
    block = min(length, longest, max(64, length // 2))
    return SequencePool(parts, length, (max(1, block // 4), block))


@dataclass(frozen=True, slots=True)
class TrainingMachine:
    """A machine with its rules, and the sequences that it is given to schedule."""

    pool: SequencePool
    rules: SchedulingRules


def training_machines(data: TrainingData, rules: SchedulingRules, length: int) -> tuple[TrainingMachine, ...]:
    """The machine of `rules`, then the others."""
    logs = [(data, rules)]
    logs += [(TrainingData(other.records), replace(rules, procs=other.procs)) for other in data.others]
    return tuple(TrainingMachine(sequence_pool(log, length), machine) for log, machine in logs)


def draw_in_turn(
    machines: Sequence[TrainingMachine], count: int, rng: np.random.Generator
) -> list[tuple[SchedulingRules, list[Records]]]:
    """`count` sequences, at least one for each machine, by machine."""
    count = max(count, len(machines))
    return [
        (machine.rules, [machine.pool.draw(rng) for _ in range(i, count, len(machines))])
        for i, machine in enumerate(machines)
    ]
