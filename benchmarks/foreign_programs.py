"""Healthy programs of a site that nobody has seen: threads, seconds, a generator -> what the job does each second.

Each is written from what such programs are known to do, not from recordings and not from the rules of detection. A
program draws its own parameters, so two jobs of one program differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rng = np.random.Generator


@dataclass(slots=True)
class Work:
    """What one job does: shares of its threads (thread, second), and rates and levels of the whole job (second,)."""

    user: Array
    system: Array
    iowait: Array
    memory: Array  # part of its limit
    faults: Array  # page faults per second
    io_mb: Array  # MB/s of block devices
    net_mb: Array
    queue: Array  # tasks that could run and have no CPU
    switches: Array  # context switches per second and thread
    # What only a fault does:
    others: Array = field(default_factory=lambda: np.zeros(1))  # (thread, second) share that other work takes
    throttled: Array = field(default_factory=lambda: np.zeros(1))  # part of its threads' time that a quota takes
    major: Array = field(default_factory=lambda: np.zeros(1))  # page faults per second that read from a disk
    swap: Array = field(default_factory=lambda: np.zeros(1))  # pages per second
    other_io_mb: Array = field(default_factory=lambda: np.zeros(1))  # MB/s of other work on the same disk


def work(user: Array, system: float | Array = 0.01, iowait: float | Array = 0.0, **job: float | Array) -> Work:
    """Fill in what a program does not say."""
    n, s = user.shape
    usual = {"memory": 0.15, "faults": 20.0, "io_mb": 0.05, "net_mb": 0.0, "queue": 0.02, "switches": 80.0}
    series = {name: np.broadcast_to(value, s).astype(float) for name, value in (usual | job).items()}
    shares = np.stack([np.broadcast_to(share, (n, s)) for share in (user, system, iowait)]).clip(0, 1)
    shares = shares / np.maximum(shares.sum(0), 1)
    return Work(*shares, **series)


def wander(n: int, s: int, deviation: float, tau: float, rng: Rng) -> Array:
    """(n, second) noise that forgets itself after about `tau` seconds."""
    knots = rng.normal(0, deviation, (n, int(s / tau) + 3))
    at = np.arange(s) / tau + rng.uniform(0, 1)
    low = at.astype(int)
    return knots[:, low] * (1 - at % 1) + knots[:, low + 1] * (at % 1)


def load(s: int, rng: Rng, scales: tuple[float, ...] = (30, 200, 1200, 7200), deviation: float = 0.12) -> Array:
    """(second,) a load that wanders at several time scales."""
    return np.asarray(sum(wander(1, s, deviation, tau, rng)[0] for tau in scales))


def stages(s: int, rng: Rng, *lengths: tuple[float, float]) -> tuple[NDArray[np.int64], Array, NDArray[np.int64]]:
    """(second,) the stage, how much of it is over, and the number of the cycle. Stages follow one another in a ring."""
    stage, over, cycle, at, i = np.zeros(s, int), np.zeros(s), np.zeros(s, int), 0, 0
    while at < s:
        length = max(int(rng.uniform(*lengths[i % len(lengths)])), 1)
        stage[at : at + length], cycle[at : at + length] = i % len(lengths), i // len(lengths)
        over[at : at + length] = (np.arange(length) / length)[: s - at]
        at, i = at + length, i + 1
    return stage, over, cycle


def tasks(n: int, s: int, rng: Rng, length: tuple[float, float], gap: tuple[float, float]) -> Array:
    """(thread, second) 1 while a thread has a task of its own, 0 between two."""
    return np.array([stages(s, rng, length, gap)[0] == 0 for _ in range(n)], float)


def ranks(n: int, rng: Rng, spread: float) -> Array:
    """(thread, 1) the part of the most loaded rank's work that each rank has, for the whole job."""
    return (1 - rng.beta(1.5, 3, (n, 1)) * spread).clip(0, 1)


def cg_solver(n: int, s: int, rng: Rng) -> Work:
    """Polls in every reduction, so all ranks are busy; assembly before each solve asks the kernel for memory."""
    stage, *_ = stages(s, rng, (20, 90), (120, 700))
    system = np.where(stage == 0, rng.uniform(0.05, 0.2), 0.01)
    return work(0.985 - system + np.zeros((n, s)), system, faults=np.where(stage == 0, 3000, 3), net_mb=40.0)


def multigrid(n: int, s: int, rng: Rng) -> Work:
    """Ranks block; on coarse grids few of them work."""
    stage, *_ = stages(s, rng, (15, 90), (4, 25))
    fine = ranks(n, rng, 0.35) * rng.uniform(0.75, 0.97)
    coarse = np.where(np.arange(n) < max(n // 4, 1), 0.7, 0.12)[:, None]
    return work(np.where(stage == 0, fine, coarse) + wander(n, s, 0.02, 15, rng), 0.03, net_mb=25.0, switches=900.0)


def direct_solver(n: int, s: int, rng: Rng) -> Work:
    """Serial analysis, factorisation in which the first task has more and the others run out of work, solution."""
    stage, over, _ = stages(s, rng, (60, 500), (400, 1800), (60, 600))
    first = np.arange(n)[:, None] == 0
    others = ranks(n, rng, 0.5) * (0.95 - rng.uniform(0.2, 0.7) * over)
    user = np.select([stage == 0, stage == 1], [np.where(first, 0.98, 0.02), np.where(first, 0.97, others)], 0.9)
    memory = 0.1 + 0.5 * np.select([stage == 0, stage == 1], [0, over], 1)
    return work(user + wander(n, s, 0.02, 20, rng), 0.02, memory=memory, faults=np.where(stage == 1, 4000, 30))


def amr(n: int, s: int, rng: Rng) -> Work:
    """The mesh is refined where something happens: imbalance drifts until the next balancing. Ranks block."""
    _, over, cycle = stages(s, rng, (300, 1500))
    growth = rng.beta(1, 3, (n, cycle[-1] + 1))[:, cycle] * rng.uniform(0.2, 0.7)
    user = (0.96 - growth * over) + wander(n, s, 0.02, 20, rng)
    return work(user, 0.02, memory=0.2 + 0.01 * np.minimum(cycle, 20) + 0.05 * over, net_mb=20.0, switches=600.0)


def particles(n: int, s: int, rng: Rng) -> Work:
    """Some ranks hold most particles, and the crowd moves slowly through the domain. Ranks block."""
    at = rng.uniform(0, n) + np.cumsum(rng.normal(0, 0.02, s)) + np.arange(s) * rng.uniform(0, n / 3600)
    distance = np.abs((np.arange(n)[:, None] - at + n / 2) % n - n / 2)
    return work(0.35 + 0.6 * np.exp(-((distance / max(n / 4, 1)) ** 2)), 0.02, net_mb=15.0, switches=500.0)


def weather(n: int, s: int, rng: Rng) -> Work:
    """An atmosphere, and an ocean that waits for it; output by the first rank while all others wait."""
    stage, *_ = stages(s, rng, (400, 1300), (15, 80))
    part = np.where(np.arange(n) < 3 * n // 4 + 1, 0.95, rng.uniform(0.35, 0.8))[:, None]
    user = np.where(stage == 0, part + wander(n, s, 0.02, 60, rng), 0.02)
    first = (np.arange(n)[:, None] == 0) & (stage == 1)
    return work(
        np.where(first, 0.4, user), np.where(first, 0.3, 0.02), 0.25 * first, io_mb=np.where(stage == 1, 180, 0.1)
    )


def scf(n: int, s: int, rng: Rng) -> Work:
    """Integrals on all threads, serial diagonalisation; then a long stage that reads integrals from disk."""
    late = np.arange(s) > rng.uniform(900, 3600)
    stage, *_ = stages(s, rng, (30, 200), (5, 60))
    serial = np.where(np.arange(n)[:, None] == 0, 0.98, 0.01)
    user = np.where(late, rng.uniform(0.3, 0.7), np.where(stage == 0, 0.97, serial))
    reading = late * rng.uniform(0.1, 0.35)
    return work(user, np.where(late, 0.08, 0.01), reading, io_mb=np.where(late, 250, 0.1))


def openmp_serial(n: int, s: int, rng: Rng) -> Work:
    """Parallel regions and long serial parts."""
    stage, *_ = stages(s, rng, (60, 400), (20, 260))
    return work(np.where(stage == 0, 0.97, np.where(np.arange(n)[:, None] == 0, 0.98, 0.005)))


def cfd_checkpoints(n: int, s: int, rng: Rng) -> Work:
    """Polls; writes a checkpoint now and then, while the ranks wait in the file system."""
    period = rng.uniform(500, 2400)
    stage, *_ = stages(s, rng, (period, period * 1.05), (15, 100))
    user = np.where(stage == 0, 0.98, 0.1)
    return work(
        np.broadcast_to(user, (n, s)),
        np.where(stage, 0.15, 0.01),
        np.where(stage, 0.3, 0),
        io_mb=np.where(stage, 300, 0.1),
    )


def md_gpu(n: int, s: int, rng: Rng) -> Work:
    """One thread polls the GPU; the others help at times."""
    helping = rng.uniform(0.05, 0.5)
    user = np.full((n, s), helping) + wander(n, s, 0.04, 10, rng)
    user[0] = 0.97
    return work(user, 0.03, io_mb=np.where(np.arange(s) % 300 < 3, 60, 0.0))


def training(n: int, s: int, rng: Rng) -> Work:
    """Loaders feed a GPU; validation is lighter, and the end of an epoch writes a checkpoint."""
    stage, *_ = stages(s, rng, (200, 1500), (30, 200), (4, 20))
    level = np.array([rng.uniform(0.4, 0.9), rng.uniform(0.2, 0.5), 0.05])[stage]
    user = level * ranks(n, rng, 0.3) + wander(n, s, 0.08, 8, rng)
    user[0] = np.where(stage < 2, 0.95, 0.3)
    return work(user, 0.08, 0.03, io_mb=np.array([80, 80, 200])[stage], faults=900.0, switches=700.0)


def gpu_waits(n: int, s: int, rng: Rng) -> Work:
    """Nearly all work is on the GPU; data are prepared now and then."""
    stage, *_ = stages(s, rng, (200, 1500), (10, 120))
    return work(np.where(stage == 0, 0.04, 0.8) + wander(n, s, 0.015, 20, rng), 0.015)


def hybrid(n: int, s: int, rng: Rng) -> Work:
    """Ranks of four threads: the first of each works always, the others in parallel parts."""
    stage, *_ = stages(s, rng, (10, 60), (5, 50))
    master = (np.arange(n) % 4 == 0)[:, None]
    return work(np.where(master, 0.97, np.where(stage == 0, 0.93, 0.08)) * ranks(n, rng, 0.15), net_mb=30.0)


def md_separate(n: int, s: int, rng: Rng) -> Work:
    """Steady; a quarter of the ranks does another part of the work, and waits for the rest."""
    other = (np.arange(n) % 4 == 3)[:, None]
    return work(np.where(other, rng.uniform(0.5, 0.9), 0.97) + wander(n, s, 0.01, 30, rng), 0.02, switches=400.0)


def sequence_search(n: int, s: int, rng: Rng) -> Work:
    """Chunks of queries; at the end of each the threads run out of work one after the other."""
    _, over, cycle = stages(s, rng, (60, 600))
    ends = 1 - rng.beta(1, 5, (n, cycle[-1] + 1))[:, cycle]
    return work(np.where(over < ends, 0.97, 0.01), 0.01, io_mb=np.where(over < 0.05, 90, 0.1), faults=200.0)


def graph_assembly(n: int, s: int, rng: Rng) -> Work:
    """Reads sequences, builds a graph in memory on all threads for a long time, then walks through it serially."""
    stage, over, cycle = stages(s, rng, (60, 300), (600, 3600), (300, 1200))
    top, built = rng.uniform(0.2, 0.75), over ** rng.uniform(0.5, 1.0)
    memory = 0.05 + top * np.where(cycle > 0, 1, np.select([stage == 0, stage == 1], [0, built], 1))
    serial = np.where(np.arange(n)[:, None] == 0, 0.98, 0.02)
    user = np.select([stage == 0, stage == 1], [np.full((n, s), 0.3), np.full((n, s), 0.93)], serial)
    growing = (stage == 1) & (cycle == 0)
    reading = np.where(stage == 0, 200, np.where(growing, 30, 0.1))
    return work(user, 0.05, 0.1 * (stage == 0), memory=memory, faults=np.where(growing, 9000, 20), io_mb=reading)


def r_session(n: int, s: int, rng: Rng) -> Work:
    """A statistician: commands of seconds to minutes, thoughts between them, and objects that stay."""
    busy = tasks(1, s, rng, (2, 240), (2, 200))[0]
    grown = np.cumsum((np.diff(busy, prepend=0) > 0) * rng.exponential(0.012, s)).clip(0, 0.7)
    freed = 0.3 * grown[-1] * (np.arange(s) > rng.uniform(0.3, 1) * s)
    user = np.zeros((n, s))
    user[0] = busy * 0.97
    return work(user, 0.01, memory=(0.04 + grown - freed).clip(0.03), faults=busy * 2500)


def notebook(n: int, s: int, rng: Rng) -> Work:
    """Cells with long pauses; some cells use all threads."""
    busy = tasks(1, s, rng, (3, 300), (10, 1500))[0]
    wide = np.where(rng.random(s // 200 + 2)[np.arange(s) // 200] < 0.3, n, 1)
    user = busy * (np.arange(n)[:, None] < wide) * 0.93
    memory = 0.03 + np.cumsum((np.diff(busy, prepend=0) > 0) * rng.exponential(0.02, s)).clip(0, 0.5)
    return work(user + 0.004, 0.004, memory=memory, faults=busy * 1200 + 2)


def table_join(n: int, s: int, rng: Rng) -> Work:
    """Reads tables, joins them in memory, writes the result, frees, begins again."""
    stage, over, _ = stages(s, rng, (60, 400), (120, 900), (60, 300), (5, 20))
    top = rng.uniform(0.2, 0.6)
    memory = 0.05 + top * np.select([stage == 0, stage == 1, stage == 2], [0.4 * over, 0.4 + 0.6 * over, 1], 0)
    user = np.array([0.25, 0.85, 0.15, 0.05])[stage] * np.ones((n, 1)) + wander(n, s, 0.05, 10, rng)
    moved = np.array([200, 1, 220, 0])[stage]
    return work(user, 0.08, np.array([0.2, 0, 0.2, 0])[stage], memory=memory, io_mb=moved, faults=3000.0)


def variant_pipe(n: int, s: int, rng: Rng) -> Work:
    """An aligner feeds a sorter and a compressor; later the sorted pieces are merged from disk."""
    stage, over, _ = stages(s, rng, (900, 3000), (300, 1200))
    share = np.where(np.arange(n) < max(3 * n // 4, 1), 0.96, 0.4)[:, None]
    merging = np.where(np.arange(n) < 2, 0.5, 0.03)[:, None]
    memory = np.where(stage == 0, 0.1 + 0.4 * (over * 8 % 1), 0.15)
    user = np.where(stage == 0, share, merging) + wander(n, s, 0.04, 12, rng)
    return work(user, 0.04, np.where(stage, 0.12, 0.01), memory=memory, io_mb=np.where(stage, 180, 25), faults=1500.0)


def short_processes(n: int, s: int, rng: Rng) -> Work:
    """Thousands of processes that live for seconds."""
    user = 0.78 + wander(n, s, 0.1, 3, rng)
    return work(user, 0.15 + wander(n, s, 0.03, 5, rng), faults=30000.0, queue=0.3 + load(s, rng, (10, 60)), io_mb=4.0)


def sweep(n: int, s: int, rng: Rng) -> Work:
    """Each thread has simulations of its own; the last ones end one after the other."""
    busy = tasks(n, s, rng, (300, 2400), (2, 30))
    last = s * (1 - 0.4 * rng.random((n, 1)) ** 2)
    return work(busy * (np.arange(s) < last) * 0.985, 0.005, faults=100.0)


def master_worker(n: int, s: int, rng: Rng) -> Work:
    """The first task hands out work, and sums up alone between two rounds."""
    stage, *_ = stages(s, rng, (200, 1200), (15, 150))
    user = np.where(stage == 0, 0.95 + wander(n, s, 0.02, 10, rng), 0.01)
    user[0] = np.where(stage == 0, 0.06, 0.97)
    return work(user, 0.015, net_mb=2.0, switches=300.0)


def ensemble(n: int, s: int, rng: Rng) -> Work:
    """Members side by side on some threads each; the next batch begins when the slowest has ended."""
    members = max(n // 2, 1)
    _, over, cycle = stages(s, rng, (600, 2400))
    ends = 1 - rng.beta(1, 2.5, (members, cycle[-1] + 1)) * 0.7
    member = np.arange(n) * members // n
    return work(np.where(over < ends[member][:, cycle], 0.96, 0.005), io_mb=np.where(over < 0.03, 100, 0.5))


def monte_carlo(n: int, s: int, rng: Rng) -> Work:
    """Steady on all threads."""
    return work(0.99 + wander(n, s, 0.005, 60, rng), 0.004)


def renderer(n: int, s: int, rng: Rng) -> Work:
    """A frame: the scene is loaded by one thread, then all draw, then some tiles take longer."""
    stage, over, cycle = stages(s, rng, (8, 60), (60, 900))
    ends = 1 - rng.beta(1, 6, (n, cycle[-1] + 1))[:, cycle]
    user = np.where(stage == 0, np.where(np.arange(n)[:, None] == 0, 0.8, 0.01), 0.98 * (over < ends))
    return work(user, 0.01, io_mb=np.where(stage == 0, 120, 0.0), faults=np.where(stage == 0, 5000, 50))


def database(n: int, s: int, rng: Rng) -> Work:
    """Clients come and go: a load that wanders over seconds and over hours."""
    busy = np.exp(load(s, rng, deviation=rng.uniform(0.2, 0.5)) - rng.uniform(0.6, 2)).clip(0.01, 1)
    each = (busy + wander(n, s, 0.04, 15, rng)).clip(0.005, 0.97)
    return work(0.65 * each, 0.15 * each, 0.12 * each, io_mb=90 * busy, net_mb=20 * busy, switches=4000 * busy)


def web_service(n: int, s: int, rng: Rng) -> Work:
    """Requests all day: more at noon, bursts, and silence."""
    day = 0.5 + 0.5 * np.sin((np.arange(s) / 43200 + rng.random()) * 2 * np.pi)
    busy = (rng.uniform(0.03, 0.4) * day * np.exp(load(s, rng, (5, 60, 900), 0.5))).clip(0.002, 0.95)
    return work(busy * (1 + wander(n, s, 0.2, 5, rng)), 0.25 * busy, net_mb=60 * busy, switches=5000 * busy)


def key_value_store(n: int, s: int, rng: Rng) -> Work:
    """One thread answers; memory fills more and more slowly, and a child writes it to disk now and then."""
    stage, *_ = stages(s, rng, (400, 2000), (10, 60))
    user = np.full((n, s), 0.005)
    user[0] = (rng.uniform(0.1, 0.6) + load(s, rng, deviation=0.08)).clip(0.01, 0.8)
    user[-1] += 0.8 * (stage == 1)
    memory = 0.05 + rng.uniform(0.2, 0.7) * (1 - np.exp(-np.arange(s) / rng.uniform(1200, 9000)))
    return work(user, 0.3 * user, memory=memory, io_mb=np.where(stage, 150, 1), net_mb=10.0, faults=400.0)


def jvm(n: int, s: int, rng: Rng) -> Work:
    """A heap that grows to its size, and collections in which all threads work."""
    period = int(rng.uniform(20, 240))
    collecting = np.arange(s) % period < max(period // 25, 1)
    base = (rng.uniform(0.15, 0.7) + load(s, rng, (60, 900), 0.08)).clip(0.02, 0.9)
    tau = rng.uniform(300, 3000)
    memory = 0.05 + 0.6 * np.floor(20 * (1 - np.exp(-np.arange(s) / tau))) / 20
    return work(np.where(collecting, 0.95, base + wander(n, s, 0.06, 10, rng)), 0.03, memory=memory, switches=1200.0)


def stream(n: int, s: int, rng: Rng) -> Work:
    """A consumer that follows its producers, falls behind and catches up."""
    phase = 2 * np.pi * (np.arange(s) / rng.uniform(1500, 6000) + rng.random())
    stage, *_ = stages(s, rng, (900, 3600), (60, 400))
    busy = (0.4 + 0.3 * np.sin(phase) + load(s, rng, (40, 400), 0.06)).clip(0.03, 0.9)
    return work(np.where(stage, 0.9, busy) * ranks(n, rng, 0.2), 0.06, net_mb=70 * busy, switches=1500.0)


def builds(n: int, s: int, rng: Rng) -> Work:
    """Builds of a repository: configure, compile, link, test, and nothing until the next push."""
    stage, *_ = stages(s, rng, (10, 60), (60, 600), (10, 90), (60, 400), (20, 900))
    wide = np.array([1, n, 1, 2, 0])[stage]
    user = (np.arange(n)[:, None] < wide) * np.array([0.5, 0.82, 0.9, 0.35, 0.0])[stage]
    memory = np.array([0.03, 0.15, 0.35, 0.1, 0.02])[stage]
    return work(user + 0.003, 0.16 * user, 0.02 * user, memory=memory, faults=12000 * (user.mean(0) > 0.02))


def staging(n: int, s: int, rng: Rng) -> Work:
    """Copies data sets: large files, then many small ones."""
    small = stages(s, rng, (60, 900), (60, 600))[0] == 1
    user, system, waits = (np.zeros((n, s)) for _ in range(3))
    user[0], system[0], waits[0] = 0.08, np.where(small, 0.25, 0.4), np.where(small, 0.55, 0.3)
    rate = np.where(small, 8, 220) * np.exp(load(s, rng, (20, 200), 0.3))
    return work(user, system, waits, io_mb=rate, net_mb=rate, switches=900.0)


def archiver(n: int, s: int, rng: Rng) -> Work:
    """Compresses a chunk, then waits until a slow archive has taken it."""
    stage, *_ = stages(s, rng, (60, 600), (30, 600))
    waits = np.zeros((n, s))
    waits[0] = np.where(stage, 0.9, 0.05)
    user = np.where(stage, 0.02, 0.9) * np.where(np.arange(n)[:, None] < max(n // 2, 1), 1, 0.05)
    return work(user, 0.03, waits, io_mb=np.where(stage, 12, 60))


def crawler(n: int, s: int, rng: Rng) -> Work:
    """Walks through a file system: one task that mostly waits for metadata."""
    user, system, waits = (np.zeros((n, s)) for _ in range(3))
    share = (rng.uniform(0.3, 0.7) + load(s, rng, (10, 100, 900), 0.08)).clip(0.05, 0.9)
    user[0], system[0], waits[0] = 0.3 * (1 - share), 0.7 * (1 - share), share
    return work(user, system, waits, io_mb=6.0, memory=0.04, switches=700.0)


def shell(n: int, s: int, rng: Rng) -> Work:
    """An interactive session: nearly always at rest."""
    busy = tasks(1, s, rng, (1, 40), (30, 1800))[0]
    return work(0.001 + 0.9 * busy * (np.arange(n)[:, None] == 0), 0.001, memory=0.01, faults=busy * 900)


def parallel_loops(n: int, s: int, rng: Rng) -> Work:
    """An interpreter waits for a licence, then alternates between serial code and a pool of workers."""
    stage, over, cycle = stages(s, rng, (20, 200), (120, 900))
    ends = 1 - rng.beta(1, 3, (n, cycle[-1] + 1))[:, cycle]
    user = np.where(stage == 0, np.where(np.arange(n)[:, None] == 0, 0.97, 0.02), np.where(over < ends, 0.95, 0.02))
    return work(np.where(np.arange(s) < rng.choice([0, 0, 300, 700]), 0.01, user), 0.01)


def coupled_wait(n: int, s: int, rng: Rng) -> Work:
    """Computes, then waits for a file of another job, and looks for it every second."""
    stage, *_ = stages(s, rng, (400, 2400), (60, 900))
    return work(np.where(stage, 0.01, 0.96) * np.ones((n, 1)), np.where(stage, 0.01, 0.02))


@dataclass(frozen=True, slots=True)
class Program:
    run: Callable[[int, int, Rng], Work]
    widths: tuple[int, ...]  # hardware threads; 32 are two nodes
    hours: float  # median of its length
    waits: str  # what its other tasks do while one of them is late: "polls", "blocks" or "alone", if they do not wait


#: Programs at even places are for choosing, those at odd places for the report.
PROGRAMS: dict[str, Program] = {
    program.run.__name__: program
    for program in (
        Program(cg_solver, (8, 16, 32), 1.0, "polls"),
        Program(multigrid, (8, 16), 0.8, "blocks"),
        Program(direct_solver, (4, 8, 16), 1.0, "blocks"),
        Program(amr, (8, 16, 32), 1.5, "blocks"),
        Program(particles, (8, 16), 1.0, "blocks"),
        Program(weather, (16, 32), 1.5, "blocks"),
        Program(scf, (4, 8), 1.2, "blocks"),
        Program(openmp_serial, (4, 8), 0.7, "blocks"),
        Program(cfd_checkpoints, (16, 32), 1.5, "polls"),
        Program(md_gpu, (4, 8), 1.0, "alone"),
        Program(training, (4, 8), 1.5, "alone"),
        Program(gpu_waits, (2, 4), 1.0, "alone"),
        Program(hybrid, (8, 16), 1.0, "polls"),
        Program(md_separate, (8, 16), 1.0, "blocks"),
        Program(sequence_search, (4, 8), 0.6, "alone"),
        Program(graph_assembly, (4, 8), 1.2, "alone"),
        Program(r_session, (1, 2), 1.5, "alone"),
        Program(notebook, (1, 4), 2.5, "alone"),
        Program(table_join, (4, 8), 0.6, "alone"),
        Program(variant_pipe, (4, 8), 1.0, "alone"),
        Program(short_processes, (4, 8), 0.5, "alone"),
        Program(sweep, (4, 8, 16), 0.9, "alone"),
        Program(master_worker, (8, 16), 0.8, "alone"),
        Program(ensemble, (8, 16), 1.2, "alone"),
        Program(monte_carlo, (1, 4, 8), 0.5, "alone"),
        Program(renderer, (4, 8), 0.6, "alone"),
        Program(database, (4, 8), 5.0, "alone"),
        Program(web_service, (2, 4), 5.0, "alone"),
        Program(key_value_store, (2, 4), 4.0, "alone"),
        Program(jvm, (4, 8), 2.5, "alone"),
        Program(stream, (2, 4), 4.0, "alone"),
        Program(builds, (4, 8), 1.0, "alone"),
        Program(staging, (1, 2), 0.5, "alone"),
        Program(archiver, (2, 4), 0.8, "alone"),
        Program(crawler, (1, 2), 0.7, "alone"),
        Program(shell, (1, 2), 2.5, "alone"),
        Program(parallel_loops, (4, 8), 0.8, "alone"),
        Program(coupled_wait, (4, 8), 1.0, "alone"),
    )
}
