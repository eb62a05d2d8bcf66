"""Faults of the programs in `foreign_programs.py`: what a fault makes of the seconds from its onset on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from foreign_programs import Array, Work

FAULT_S = 900  # from the onset to the end of the job


@dataclass(frozen=True, slots=True)
class Scene:
    """A fault meets a job."""

    work: Work
    onset: int
    victim: int  # the thread whose task has the fault, if it concerns one task
    waits: str

    @property
    def shares(self) -> tuple[Array, Array, Array]:
        """Views of the seconds from the onset on."""
        return tuple(each[:, self.onset :] for each in (self.work.user, self.work.system, self.work.iowait))

    @property
    def busy(self) -> Array:
        user, system, _ = self.shares
        return user + system

    def scale(self, factor: float, names: Sequence[str] = ("faults", "io_mb", "net_mb", "switches")) -> None:
        for name in names:
            getattr(self.work, name)[self.onset :] *= factor

    def set_later(self, name: str, value: float | Array) -> None:
        """A series that only a fault has."""
        work, seconds = self.work, self.work.user.shape[1]
        series = np.zeros((len(work.user), seconds) if name == "others" else seconds)
        series[..., self.onset :] = value
        setattr(work, name, series)


def stopped(scene: Scene) -> None:
    for share in scene.shares:
        share[:] = 0
    scene.scale(0)


def finished(scene: Scene) -> None:
    stopped(scene)
    scene.work.memory[scene.onset :] = 0.003


def hung_rank(scene: Scene) -> None:
    """One task stands still. The others poll, block, or go on."""
    _late(scene, 0.0)


def straggler(scene: Scene) -> None:
    """One task is stopped half of the time."""
    _late(scene, 0.5)


def slow_core(scene: Scene) -> None:
    """One core has half of its frequency: its task is always busy, and the others wait for it."""
    own = scene.busy[scene.victim].copy()
    _late(scene, 0.5)
    scene.work.user[scene.victim, scene.onset :] = np.minimum(2 * own, 0.99)


def _late(scene: Scene, factor: float) -> None:
    user, system, iowait = scene.shares
    own = [share[scene.victim] * factor for share in scene.shares]
    if scene.waits == "polls":
        user[:], system[:], iowait[:] = 0.985, 0.008, 0
    elif scene.waits == "blocks":
        for share in scene.shares:
            share *= factor
    for share, value in zip(scene.shares, own, strict=True):
        share[scene.victim] = value
    if scene.waits != "alone":
        scene.scale(factor)


def lost_workers(scene: Scene) -> None:
    """Half of the tasks have ended."""
    for share in scene.shares:
        share[len(share) // 2 :] = 0
    scene.scale(0.5)
    scene.work.memory[scene.onset :] *= 0.6


def cpu_contention(scene: Scene) -> None:
    """Another program computes on all threads of the job."""
    queue = scene.busy.sum(0)
    for share in scene.shares:
        share *= 0.5
    scene.set_later("others", 0.98 - scene.busy)
    scene.work.queue[scene.onset :] += queue
    scene.scale(0.5)


def misbound(scene: Scene) -> None:
    """All tasks share a quarter of the threads."""
    user, system, _ = scene.shares
    few = max(len(user) // 4, 1)
    total = scene.busy.sum(0)
    user[:], system[:] = 0, 0
    user[:few] = np.minimum(total / few, 0.98)
    scene.work.queue[scene.onset :] += np.maximum(total - few, 0)
    scene.scale(min(float(few / max(total.mean(), 0.1)), 1.0))


def slow_leak(scene: Scene) -> None:
    _leak(scene, 0.7 / 3600)


def fast_leak(scene: Scene) -> None:
    _leak(scene, 0.7 / FAULT_S)


def _leak(scene: Scene, rate: float) -> None:
    memory = scene.work.memory[scene.onset :]
    memory[:] = np.minimum(memory + rate * np.arange(len(memory)), 0.99)
    scene.work.faults[scene.onset :] += rate * 16e9 / 4096


def swapping(scene: Scene) -> None:
    user, _, iowait = scene.shares
    iowait += 0.6 * user
    user *= 0.25
    scene.work.memory[scene.onset :] = 0.97
    scene.work.io_mb[scene.onset :] += 60
    scene.set_later("major", 800.0)
    scene.set_later("swap", 6000.0)


def stalled_io(scene: Scene) -> None:
    """A file system does not answer; within a minute every task waits for it."""
    user, _, iowait = scene.shares
    late = np.arange(user.shape[1]) < np.linspace(5, 60, len(user))[:, None]
    waiting = np.where(late, 0, 0.9 * (scene.busy.mean(1, keepdims=True) > 0.1))
    for share in scene.shares:
        share *= late
    iowait += waiting
    scene.scale(0.02)


def io_hog(scene: Scene) -> None:
    """Another program keeps the job's disk busy."""
    user, system, iowait = scene.shares
    iowait += 0.5 * user
    user *= 0.5
    system *= 0.7
    scene.scale(0.4)
    scene.set_later("other_io_mb", 450.0)


def throttled(scene: Scene) -> None:
    """A quota leaves the job a third of its threads' time."""
    over = np.maximum(scene.busy.mean(0) - 1 / 3, 0)
    part = 1 - over / np.maximum(scene.busy.mean(0), 1e-9)
    for share in scene.shares:
        share *= part
    scene.set_later("throttled", over)
    scene.scale(0.5)


def spinning(scene: Scene) -> None:
    """All tasks wait for each other in busy loops."""
    user, system, iowait = scene.shares
    user[:], system[:], iowait[:] = 0.99, 0.002, 0
    scene.scale(0)


def kernel_storm(scene: Scene) -> None:
    """The kernel compacts memory in the name of the job: more than half of its CPU time."""
    user, system, _ = scene.shares
    busy = scene.busy.copy()
    user[:], system[:] = 0.4 * busy, 0.6 * busy
    scene.scale(0.4)


@dataclass(frozen=True, slots=True)
class Fault:
    impose: Callable[[Scene], None]
    causes: frozenset[str]  # that name it
    least_busy: float = 0.15  # mean of the threads: a job that does less would not notice
    least_threads: int = 1
    waits: tuple[str, ...] = ("polls", "blocks", "alone")
    least_io_mb: float = 0.0


_LATE = frozenset({"straggler", "hung-rank", "idle"})
FAULTS = {
    fault.impose.__name__: fault
    for fault in (
        Fault(stopped, frozenset({"idle", "hung-rank"})),
        Fault(finished, frozenset({"idle", "hung-rank"})),
        Fault(hung_rank, frozenset({"idle", "hung-rank"}), 0.3, 2),
        Fault(straggler, _LATE, 0.5, 2),
        Fault(slow_core, _LATE, 0.5, 2, ("blocks",)),
        Fault(lost_workers, frozenset({"idle", "hung-rank"}), 0.3, 2, ("alone",)),
        Fault(cpu_contention, frozenset({"cpu-contention"}), 0.3),
        Fault(misbound, frozenset({"misbound"}), 0.4, 2),
        Fault(slow_leak, frozenset({"leak"}), 0.0),
        Fault(fast_leak, frozenset({"leak", "memory-pressure"}), 0.0),
        Fault(swapping, frozenset({"swapping", "memory-pressure"})),
        Fault(stalled_io, frozenset({"stalled-io"})),
        Fault(io_hog, frozenset({"stalled-io"}), least_io_mb=20.0),
        Fault(throttled, frozenset({"throttled"}), 0.6),
        Fault(spinning, frozenset({"spinning"})),
        Fault(kernel_storm, frozenset({"kernel-time", "unusual"}), 0.3),
    )
}
