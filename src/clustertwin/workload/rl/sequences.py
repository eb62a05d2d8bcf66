"""Training sequences: a load and what is held out of it -> short loads, drawn at random, free of held-out jobs.

A sequence is a chain of blocks cut from the jobs that may be used, each with its own gaps between submissions. A log
of a few thousand jobs then gives many more sequences than it has windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clustertwin.core.errors import SettingsError
from clustertwin.workload.simulator.machine import Records


@dataclass(frozen=True, slots=True)
class Pool:
    """The stretches of a log that may be trained on."""

    stretches: tuple[Records, ...]
    length: int  # jobs in a sequence
    block: tuple[int, int]  # shortest and longest block

    def draw(self, rng: np.random.Generator) -> Records:
        """One sequence of `length` jobs."""
        parts: list[Records] = []
        left, time_s = self.length, 1.0
        while left > 0:
            size = min(left, int(rng.integers(self.block[0], self.block[1] + 1)))
            places = np.array([max(0, len(stretch) - size + 1) for stretch in self.stretches])
            stretch = self.stretches[rng.choice(len(places), p=places / places.sum())]
            first = int(rng.integers(0, len(stretch) - size + 1))
            part = stretch[first : first + size].copy()
            # The gap before the block is the one before its first job, where the stretch has one.
            before_s = part["submit_s"][0] - stretch["submit_s"][max(first - 1, 0)]
            part["submit_s"] += time_s + before_s - part["submit_s"][0]
            time_s = float(part["submit_s"][-1])
            parts.append(part)
            left -= size
        return np.concatenate(parts)


def pool(
    load: Records, length: int = 1024, held_out: Sequence[tuple[int, int]] = (), also: Sequence[Records] = ()
) -> Pool:
    """What may be trained on: a load without the ranges of jobs `held_out` (first, one past the last), and others."""
    usable = np.ones(len(load), dtype=bool)
    for first, last in held_out:
        usable[first:last] = False
    edges = np.flatnonzero(np.diff(usable, prepend=False, append=False))
    stretches = (*(load[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)), *also)
    longest = max((len(stretch) for stretch in stretches), default=0)
    if longest < min(length, 64):
        raise SettingsError(f"only {longest} jobs in a row are left to train on; hold out less")
    block = min(length, longest, max(64, length // 2))
    return Pool(stretches, length, (max(1, block // 4), block))
