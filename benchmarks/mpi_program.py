"""An MPI program that works, and then has one known fault: mpiexec -n 4 python mpi_program.py KIND RANK DIRECTORY.

It iterates over a neighbour exchange, an all-reduce and some arithmetic, or with `--pattern workers` over tasks that
rank 0 sends to the others. After `--after` seconds RANK does what KIND
names. The file DIRECTORY/fault then contains the time. Kinds that begin with `healthy` have no fault.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

FAULTS = ("stopped", "blocked-io", "mismatch", "lost-message", "spins")
GOES_ON = ("idle", "straggler", "leak", "throttled")  # faults after which the job still ends by itself
LEAKED: list[bytes] = []
HEALTHY = (
    "healthy-tight", "healthy-compute", "healthy-io", "healthy-uneven", "healthy-exchange", "healthy-child",
    "healthy-threads",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=(*FAULTS, *GOES_ON, *HEALTHY))
    parser.add_argument("rank", type=int)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--after", type=float, default=1.0)
    parser.add_argument("--lasts", type=float, default=60.0)
    parser.add_argument("--late", action="store_true", help="fail after the work of an iteration, not before it")
    parser.add_argument("--pattern", choices=("exchange", "workers"), default="exchange")
    options = parser.parse_args()
    world = MPI.COMM_WORLD
    begin_s = time.monotonic()
    for iteration in range(10**9):
        # Rank 0 decides, so that every rank reaches the fault and the end in the same iteration.
        age_s = world.bcast(time.monotonic() - begin_s if world.rank == 0 else 0.0)
        if age_s > options.lasts:
            return
        if options.kind in (*FAULTS, *GOES_ON) and age_s > options.after:
            if world.rank == options.rank and not (options.directory / "fault").exists():
                (options.directory / "fault").write_text(str(time.time()))
            if options.kind == "idle":
                time.sleep(options.lasts)
                return
            if world.rank == options.rank and not options.late:
                fail(options.kind, world, options.directory)
        if options.pattern == "workers":
            distribute(iteration, world)
        else:
            work(options.kind, iteration, world, options.directory)
        if options.late and options.kind in FAULTS and age_s > options.after and world.rank == options.rank:
            fail(options.kind, world, options.directory)


def work(kind: str, iteration: int, world: MPI.Comm, directory: Path) -> None:
    """One iteration of a healthy program of this kind."""
    values = np.full(64, float(iteration))
    total = np.empty_like(values)
    if kind == "healthy-tight":
        world.Allreduce(values, total)
        return
    if kind == "healthy-child" and world.rank == 0:  # the others wait for a program that rank 0 has started
        code = "import time; end_s = time.monotonic() + 20\nwhile time.monotonic() < end_s: sum(range(1000))"
        subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    if kind == "healthy-threads":  # the first thread of each rank waits in MPI for another one, which computes
        worker = threading.Thread(target=lambda: (compute_for(20.0), world.Send(values, world.rank, 7)))
        worker.start()
        world.Recv(total, world.rank, 7)
        worker.join()
    if kind == "healthy-compute":
        arithmetic(400_000)
    elif kind == "healthy-uneven":
        arithmetic(60_000 * (1 + 6 * (world.rank == iteration % world.size)))
    elif kind == "healthy-io" and iteration % 20 == 0 and world.rank == 0:
        with (directory / "checkpoint").open("wb") as file:
            for _ in range(16):
                file.write(os.urandom(1 << 18))
            os.fsync(file.fileno())
    else:
        arithmetic(20_000)
    right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    world.Sendrecv(values, right, 1, total, left, 1)
    world.Allreduce(values, total)


def distribute(iteration: int, world: MPI.Comm) -> None:
    """One iteration of a program whose rank 0 sends a task to each other rank and waits for the results."""
    values = np.full(64, float(iteration))
    if world.rank == 0:
        for worker in range(1, world.size):
            world.Send(values, worker, 1)
        for _ in range(1, world.size):
            world.Recv(values, MPI.ANY_SOURCE, 2)
    else:
        world.Recv(values, 0, 1)
        arithmetic(20_000)
        world.Send(values, 0, 2)


def arithmetic(steps: int) -> float:
    return sum(step * 0.5 for step in range(steps))


def compute_for(seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        arithmetic(50_000)


def throttle(directory: Path) -> None:
    """Limit this process to a tenth of a CPU, by a cgroup where one can be made, and otherwise by signals."""
    if (directory / "throttled").exists():
        return
    group = Path("/sys/fs/cgroup/cpu") / f"{directory.parent.name}-{directory.name}-{os.getpid()}"
    try:
        group.mkdir()
        (group / "cpu.cfs_quota_us").write_text("10000")
        (group / "cgroup.procs").write_text(str(os.getpid()))
        (directory / "throttled").write_text(str(group))
    except OSError:
        (directory / "throttled").write_text("by signals")
        if os.fork() == 0:
            parent = os.getppid()
            while os.getppid() == parent:
                os.kill(parent, signal.SIGSTOP)
                time.sleep(0.09)
                os.kill(parent, signal.SIGCONT)
                time.sleep(0.01)
            os._exit(0)


def fail(kind: str, world: MPI.Comm, directory: Path) -> None:
    """What the faulty rank does instead of its iteration."""
    values = np.zeros(64)
    if kind == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "blocked-io":
        path = directory / "endless"
        os.mkfifo(path)
        os.read(os.open(path, os.O_RDWR), 1)
    elif kind == "mismatch":
        world.Barrier()
        world.Barrier()
        world.Barrier()
    elif kind == "lost-message":
        world.Recv(values, (world.rank + 1) % world.size, 99)
    elif kind == "spins":
        while True:
            pass
    elif kind == "leak":
        if len(LEAKED) < 200:
            LEAKED.append(b"x" * (1 << 20))
    elif kind == "throttled":
        throttle(directory)
    elif kind == "straggler":
        compute_for(15.0)


if __name__ == "__main__":
    main()
