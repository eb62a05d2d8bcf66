"""What-if for any generator: a stream of jobs and a workload change -> a changed stream, at constant memory.

A rate above 1 needs more jobs than one stream has, so several independent streams are merged in time (superposition).
Then each job is kept with the probability factor / streams (thinning). Both keep the hours of the day and whatever
else the streams model; the order of jobs within one stream becomes looser as more streams are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from clustertwin.core.durations import DAY_S, WEEK_S
from clustertwin.core.errors import SettingsError
from clustertwin.workload.generators.workload_change import (
    ModelledLog,
    WorkloadChange,
    check_length,
    even_counts,
    fit_to_machine,
    machine_factor,
    refuse_unused_sizes,
    size_factors,
    user_factors,
)
from clustertwin.workload.jobs import COLUMNS, Jobs
from clustertwin.workload.machine_size import counted_sizes

#: (number of jobs, rng) -> blocks of jobs, in the order of submission; drawn only when they are taken.
Stream = Callable[[int, np.random.Generator], Iterator[Jobs]]

ENDLESS = 2**62  # jobs
MOST_STREAMS = 64
PILOT_JOBS = 5_000  # to estimate how much work a smaller machine cuts off
GIVE_UP_JOBS = 100_000  # drawn in a row without keeping one


def superpose(
    stream: Stream, log: ModelledLog, change: WorkloadChange, n: int | None, rng: np.random.Generator
) -> Iterator[Jobs]:
    """n jobs, or the jobs of `change.days`, with the change applied. Settings are checked before the first block."""
    check_length(n, change)
    for name in change.users:
        log.user_code(name)
    if log.machine_size is not None:
        # No job is larger than the machine.
        refuse_unused_sizes(np.arange(1, log.machine_size + 1), change)
    rate = change.load * _machine_rate(stream, log, change.machine, rng)
    largest = rate * max([1.0, *change.users.values()]) * max([1.0, *change.sizes.values()])
    count = max(1, int(np.ceil(largest)))
    if count > MOST_STREAMS:
        raise SettingsError(f"the factors multiply to {largest:.3g}; this generator can reach {MOST_STREAMS} at most")
    merged = merge([stream(ENDLESS, child) for child in rng.spawn(count)])
    return _cut(_thin(merged, log, change, rate / count, rng), change, n)


def _machine_rate(stream: Stream, log: ModelledLog, machine: int | None, rng: np.random.Generator) -> float:
    if machine is None:
        return 1.0
    if log.machine_size is None:
        raise SettingsError("this generator does not know the size of the log's machine, so it cannot change it")
    if machine >= log.machine_size:
        return machine / log.machine_size
    return machine_factor(concatenate(stream(PILOT_JOBS, *rng.spawn(1))), log.machine_size, machine)


def merge(streams: list[Iterator[Jobs]]) -> Iterator[Jobs]:
    """Several streams -> one in the order of submission. It holds one block of each stream."""
    blocks = [next(stream) for stream in streams]
    while True:
        # Up to here no stream can still deliver an earlier job.
        complete_s = min(float(block.submit_s[-1]) for block in blocks)
        cuts = [int(np.searchsorted(block.submit_s, complete_s, side="right")) for block in blocks]
        ready = concatenate(block.take(slice(0, cut)) for block, cut in zip(blocks, cuts, strict=True))
        yield ready.take(np.argsort(ready.submit_s, kind="stable"))
        for i, (block, cut) in enumerate(zip(blocks, cuts, strict=True)):
            if cut < len(block):
                blocks[i] = block.take(slice(cut, None))
            else:
                following = next(streams[i], None)
                if following is None:
                    return
                blocks[i] = following


def _thin(
    blocks: Iterable[Jobs], log: ModelledLog, change: WorkloadChange, rate: float, rng: np.random.Generator
) -> Iterator[Jobs]:
    """Keep each job with the probability of its factors times `rate`."""
    rejected = 0
    for block in blocks:
        size = counted_sizes(block)
        factors = rate * user_factors(block.user, change, log) * size_factors(size, change)
        kept = even_counts(factors, size * block.run_s, rng) > 0
        rejected = 0 if kept.any() else rejected + len(block)
        if rejected >= GIVE_UP_JOBS:
            raise SettingsError(f"the factors leave no jobs: {rejected} jobs were drawn and none was kept")
        yield block.take(kept)


def _cut(blocks: Iterable[Jobs], change: WorkloadChange, n: int | None) -> Iterator[Jobs]:
    """Move the start, stop after n jobs or after `change.days`, fit jobs to the machine and number them."""
    until_s = np.inf if change.days is None else change.days * DAY_S
    taken = 0
    for block in blocks:
        epoch_s, skip_s = _start(block.epoch_s, change)
        submit_s = block.submit_s - skip_s
        last = int(np.searchsorted(submit_s, until_s))
        inside = slice(int(np.searchsorted(submit_s, 0.0)), last)
        jobs, submit_s = block.take(inside), submit_s[inside]
        if n is not None:
            jobs, submit_s = jobs.take(slice(0, n - taken)), submit_s[: n - taken]
        if len(jobs):
            ids = np.arange(taken + 1, taken + len(jobs) + 1)
            jobs = replace(jobs, id=ids, submit_s=submit_s, epoch_s=epoch_s)
            taken += len(jobs)
            yield jobs if change.machine is None else fit_to_machine(jobs, change.machine)
        if taken == n or last < len(block):
            return


def _start(epoch_s: float, change: WorkloadChange) -> tuple[float, float]:
    """The new date of time zero, and how far into the stream it lies: at the same moment of the week."""
    if change.start_s is None:
        return epoch_s, 0.0
    return change.start_s, (change.start_s - epoch_s) % WEEK_S if epoch_s else 0.0


def concatenate(blocks: Iterable[Jobs]) -> Jobs:
    """Blocks of one stream -> one table. Machine, names and dates are those of the first block."""
    parts = list(blocks)
    columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS}
    return replace(parts[0], **columns)
