"""Impose a fault on a healthy job: the recorded seconds of its threads -> the same seconds with the fault in them.

Every function keeps the ratios of a thread summing to one, and couples the ranks of a job as a real fault does: a rank
that is stopped or slow makes the others wait, two ranks on one thread share its second, and a disk that is slow is slow
for all. Ranks that keep their thread busy are assumed to poll while they wait; ranks that idle anyway are assumed to
block. The same seed gives the same seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.channels import Schema
from clustertwin.telemetry.moments.moment import Moment

Values = NDArray[np.float32]  # (thread, second, channel)
#: A job's values and the columns of its channels, rng -> the values with the fault.
Effect = Callable[["CpuValues", np.random.Generator], Values]

_TICKS = 100  # of the kernel, in a second
_IDLE = (0.004, 0.003, 0.0, 0.993)  # a thread that does nothing: user, system, iowait, other
_POLLING = (0.4, 0.6, 0.0, 0.0)  # a rank that waits in a collective and yields its thread
_BLOCKING_IDLE = 0.05  # a job whose threads idle more than this blocks while it waits
_MEMORY = "memory_used"


@dataclass(frozen=True, slots=True)
class CpuValues:
    """The four channels of a job's threads, in the order user, system, iowait, other."""

    values: Values  # (thread, second, 4)

    @property
    def busy(self) -> NDArray[np.float32]:
        """(thread, second) user and system."""
        busy: NDArray[np.float32] = self.values[..., 0] + self.values[..., 1]
        return busy

    @property
    def waiting(self) -> NDArray[np.float32]:
        """(channel,) what a thread of this job does while it waits for another one."""
        blocks = float(self.values[..., 3].mean()) > _BLOCKING_IDLE
        return np.array(_IDLE if blocks else _POLLING, np.float32)


@dataclass(frozen=True, slots=True)
class ImposedFault:
    """How a fault changes a job, and which jobs it can change."""

    effect: Effect
    ranks: int = 1  # the fewest threads that such a job has
    least_busy: float = 0.0  # mean part of its seconds that the job uses; an idle job has no time to lose
    needs_job: bool = True  # False: can be imposed on the threads of a node whose jobs are unknown


def all_idle(job: CpuValues, rng: np.random.Generator) -> Values:
    """Every rank sleeps, and the job still holds its threads."""
    threads, seconds = job.values.shape[:2]
    return _idle(threads, seconds, rng)


def one_idle(job: CpuValues, rng: np.random.Generator) -> Values:
    """One rank is stopped, and the others wait for it."""
    threads, seconds = job.values.shape[:2]
    values = _drawn(np.broadcast_to(job.waiting, job.values.shape), rng)
    values[int(rng.integers(threads))] = _idle(1, seconds, rng)[0]
    return values


def straggler(factor: float) -> Effect:
    """One rank needs `factor` times as long for each step: the job runs slower, and the other ranks wait for it."""

    def effect(job: CpuValues, rng: np.random.Generator) -> Values:
        slow = CpuValues(_stretched(job.values, factor))
        values = _with_waits(slow.values, job.waiting, 1 - 1 / factor, rng)
        victim = int(rng.integers(len(values)))
        values[victim] = slow.values[victim]
        gained = values[victim, :, 3] * np.float32(1 - 1 / factor)  # it waits for nobody any more
        values[victim, :, 3] -= gained
        values[victim, :, 0] += gained
        return values

    return effect


def raised_iowait(job: CpuValues, rng: np.random.Generator) -> Values:
    """All ranks wait for a disk for 30 to 70 % of their time."""
    return _with_waits(job.values, np.array((0, 0, 1, 0), np.float32), float(rng.uniform(0.3, 0.7)), rng)


def throttled(job: CpuValues, rng: np.random.Generator) -> Values:
    """A CPU quota stops every rank for the rest of each period: 40 to 70 % of a thread remain."""
    quota = np.float32(rng.uniform(0.4, 0.7))
    part = np.minimum(1, quota / np.maximum(job.busy, 1e-6))[..., None].astype(np.float32)
    return _slowed(job.values, part)


def misbound(job: CpuValues, rng: np.random.Generator) -> Values:
    """Two ranks share one thread and take turns, their second thread idles, and the other ranks wait for both."""
    threads, seconds = job.values.shape[:2]
    shared, left = rng.choice(threads, 2, replace=False)
    total = job.busy[shared] + job.busy[left]  # (second,) the work of both in a second of one thread
    slowdown = max(float(total.mean()), 1.0)
    slow = _stretched(job.values, slowdown)
    values = _with_waits(slow, job.waiting, 1 - 1 / slowdown, rng) if slowdown > 1 else slow.copy()
    both = job.values[shared] + job.values[left]
    part = np.minimum(1, 1 / np.maximum(total, 1e-6)).astype(np.float32)
    values[shared] = both * part[:, None]
    values[shared, :, 3] = np.maximum(1 - values[shared, :, :3].sum(-1), 0)
    values[shared] /= values[shared].sum(-1, keepdims=True)
    values[left] = _idle(1, seconds, rng)[0]
    return values


def raised_system(job: CpuValues, rng: np.random.Generator) -> Values:
    """The kernel takes 25 to 50 % of the user time: paging, spinning locks, or a system call in a loop."""
    values = job.values.copy()
    moved = values[..., 0] * np.float32(rng.uniform(0.25, 0.5))
    values[..., 0] -= moved
    values[..., 1] += moved
    return values


#: The kinds of the golden set. The names are keys of stored results.
FAULTS: dict[str, ImposedFault] = {
    "all ranks idle": ImposedFault(all_idle, least_busy=0.2),
    "one rank idle": ImposedFault(one_idle, ranks=2, least_busy=0.2),
    "straggler x1.5": ImposedFault(straggler(1.5), ranks=2, least_busy=0.4),
    "straggler x2": ImposedFault(straggler(2.0), ranks=2, least_busy=0.4),
    "iowait raised": ImposedFault(raised_iowait, least_busy=0.2, needs_job=False),
    "throttled": ImposedFault(throttled, least_busy=0.8),
    "misbound": ImposedFault(misbound, ranks=2, least_busy=0.4),
    "system raised": ImposedFault(raised_system, least_busy=0.4, needs_job=False),
}
LEAK = "leak"  # the memory of a node fills; imposed only where memory is measured


def impose(kind: str, job: Moment, rng: np.random.Generator) -> Moment:
    """A moment with the threads of one job -> the same moment with the fault in all of its seconds."""
    if kind == LEAK:
        return _leaking(job, rng)
    columns = cpu_columns(job.schema)
    values = job.values.copy()
    values[..., columns] = FAULTS[kind].effect(CpuValues(job.values[..., columns]), rng)
    values[~job.valid] = 0
    return replace(job, values=values)


def has_memory(moment: Moment) -> bool:
    channels = moment.node_channels
    return channels is not None and _MEMORY in channels.schema.names


def cpu_columns(schema: Schema) -> list[int]:
    """The columns of user, system, iowait and other."""
    return [schema.index(name) for name in ("user", "system", "iowait", "other")]


def _leaking(job: Moment, rng: np.random.Generator) -> Moment:
    """The memory of the job's nodes fills by 10 to 30 points within the moment."""
    channels = job.node_channels
    assert channels is not None
    values = channels.values.copy()  # (node, second, channel)
    column = channels.schema.index(_MEMORY)
    ramp = np.linspace(0, rng.uniform(0.1, 0.3), values.shape[1])
    nodes = np.unique(job.node)
    values[nodes, :, column] = np.minimum(values[nodes, :, column] + ramp, 0.99)
    return replace(job, node_channels=replace(channels, values=values))


def _idle(threads: int, seconds: int, rng: np.random.Generator) -> Values:
    return _drawn(np.broadcast_to(np.array(_IDLE, np.float32), (threads, seconds, 4)), rng)


def _drawn(ratios: Values, rng: np.random.Generator) -> Values:
    """Whole kernel ticks with these means."""
    mean = np.asarray(ratios, np.float64)
    return (rng.multinomial(_TICKS, mean / mean.sum(-1, keepdims=True)) / _TICKS).astype(np.float32)


def _with_waits(values: Values, waiting: NDArray[np.float32], mean: float, rng: np.random.Generator) -> Values:
    """Every thread waits for a part of each second. The parts vary with the second, mostly in common."""
    threads, seconds = values.shape[:2]
    common = 0.12 * _smooth_noise(seconds, rng)
    own = 0.04 * rng.standard_normal((threads, seconds))
    wait = np.clip(mean + common + own, 0, 0.95).astype(np.float32)[..., None]
    return values * (1 - wait) + wait * waiting


def _smooth_noise(seconds: int, rng: np.random.Generator, memory: float = 0.8) -> NDArray[np.float64]:
    """(second,) noise with unit variance that forgets within a few seconds."""
    noise = rng.standard_normal(seconds) * np.sqrt(1 - memory**2)
    noise[0] /= np.sqrt(1 - memory**2)
    for second in range(1, seconds):
        noise[second] += memory * noise[second - 1]
    return noise


def _stretched(values: Values, factor: float) -> Values:
    """The same work in `factor` times the time."""
    return values[:, (np.arange(values.shape[1]) / factor).astype(np.intp)]


def _slowed(values: Values, part: NDArray[np.float32]) -> Values:
    """A part of the user, system and wait time of each second; the rest idles."""
    slowed = values * part
    slowed[..., 3] = 1 - slowed[..., :3].sum(-1)
    return slowed
