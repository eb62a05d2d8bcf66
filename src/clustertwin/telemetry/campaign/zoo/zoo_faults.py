"""The table of faults that can be imposed on any running program: name -> what is done to its job, and undone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.campaign.zoo.job_group import JobGroup
from clustertwin.telemetry.campaign.zoo.spin_in_place import spinning

_HOGS = Path(__file__).parent / "hogs"
_DUTY_S = 0.2  # one cycle of a process that is slowed
_LEAK_MOST_MB = 8000.0
_EATEN = "4g"
_SWAP_BYTES = 4 << 30
_SWAP_FILE = "swap"
_FAULTS_PER_S = (200, 2000)  # major page faults of a job that swaps
_LEAST_MEMORY_BYTES = 1 << 20
_BLOCKED_BYTES_PER_S = 4096
_LONGER = 1.4  # a suspicion needs 100 s, and the two looks that confirm it up to 50 s more


@dataclass(frozen=True, slots=True)
class Scene:
    """A running program, as a fault meets it."""

    job: JobGroup
    neighbours: JobGroup
    scratch: Path  # on a disk
    start_program: Callable[[], int]  # starts one more copy; returns the process that repeats it
    spared: list[int]  # processes of the job that do none of its work: shells, and those of a fault
    of_one_rank: bool  # a fault of a rank concerns one process, not all
    memory_limit_bytes: int


@dataclass(frozen=True, slots=True)
class ZooFault:
    """A row of the table. `impose` is entered at the onset and left at the end."""

    about: str
    cause: str  # what a detector should name
    impose: Callable[[Scene], AbstractContextManager[None]]
    longer: float = 1.0  # its phase, as a multiple of that of the other faults


def spawn(group: JobGroup, command: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    """Start a command in a group."""
    quiet = subprocess.DEVNULL
    return subprocess.Popen(
        command, cwd=folder, stdin=quiet, stdout=quiet, stderr=quiet, preexec_fn=group.enter, process_group=0
    )


def ranks_of(scene: Scene) -> list[int]:
    """The processes that a fault of a rank concerns: the busiest one, or all that do the program's work."""
    work = [process for process in scene.job.processes() if process not in scene.spared]
    return [max(work, key=_cpu_ticks)] if scene.of_one_rank and work else work


def _cpu_ticks(process: int) -> int:
    with suppress(OSError, IndexError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])
    return -1


def _send(processes: Sequence[int], number: int) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


@contextmanager
def _process(scene: Scene, group: JobGroup, command: Sequence[str]) -> Iterator[None]:
    program = spawn(group, command, scene.scratch)
    scene.spared.append(program.pid)
    try:
        yield
        if program.poll() is not None:
            raise SettingsError(f"{command[0]} ended early with exit code {program.returncode}")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()
        if group is scene.neighbours:
            group.end_processes()  # workers of a hog have process groups of their own


def _beside(*command: str) -> Callable[[Scene], AbstractContextManager[None]]:
    """Another program on the job's CPUs, outside of its group."""
    return lambda scene: _process(scene, scene.neighbours, command)


def _inside(*command: str) -> Callable[[Scene], AbstractContextManager[None]]:
    """One more process in the job's group."""
    return lambda scene: _process(scene, scene.job, command)


def _leak(mb_per_s: float) -> Callable[[Scene], AbstractContextManager[None]]:
    return _inside(sys.executable, "-I", str(_HOGS / "grow_memory.py"), str(mb_per_s), str(_LEAK_MOST_MB))


@contextmanager
def _stopped(scene: Scene) -> Iterator[None]:
    """The processes are stopped; those that start in their place are stopped too."""
    over = threading.Event()

    def keep_stopped() -> None:
        while not over.wait(0.5):
            if not scene.of_one_rank:
                _send(ranks_of(scene), signal.SIGSTOP)

    processes = ranks_of(scene)
    _send(processes, signal.SIGSTOP)
    keeper = threading.Thread(target=keep_stopped, daemon=True)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()
        _send(scene.job.processes(), signal.SIGCONT)


@contextmanager
def _blocked(scene: Scene) -> Iterator[None]:
    """The program waits, and a read of its job from the disk is not answered for minutes."""
    file = scene.scratch / "blocked.bin"
    file.write_bytes(os.urandom(4 << 20))
    os.sync()
    device = device_of(file)
    scene.job.limit_reads(device, _BLOCKED_BYTES_PER_S)
    command = (sys.executable, "-I", str(_HOGS / "read_directly.py"), str(file))
    try:
        with _stopped(scene), _process(scene, scene.job, command):
            try:
                yield
            finally:
                scene.job.limit_reads(device, 0)
    finally:
        scene.job.limit_reads(device, 0)


def device_of(file: Path) -> str:
    number = file.stat().st_dev
    path = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    whole = path.resolve().parent / "dev" if (path / "partition").exists() else path / "dev"
    return whole.read_text().strip()


def _spinning(scene: Scene) -> AbstractContextManager[None]:
    return spinning(lambda: ranks_of(scene), scene.of_one_rank)


@contextmanager
def _finished(scene: Scene) -> Iterator[None]:
    """All processes have ended; the group and its CPUs stay allocated."""
    scene.job.end_processes()
    scene.spared.clear()
    try:
        yield
    finally:
        scene.spared.append(scene.start_program())


def _slowed(factor: float) -> Callable[[Scene], AbstractContextManager[None]]:
    @contextmanager
    def impose(scene: Scene) -> Iterator[None]:
        """The processes are stopped for a part of every cycle."""
        over = threading.Event()

        def cycle() -> None:
            while not over.is_set():
                _send(slow := ranks_of(scene), signal.SIGSTOP)
                over.wait(_DUTY_S * (1 - 1 / factor))
                _send(slow, signal.SIGCONT)
                over.wait(_DUTY_S / factor)

        thread = threading.Thread(target=cycle, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            _send(scene.job.processes(), signal.SIGCONT)

    return impose


@contextmanager
def _throttled(scene: Scene) -> Iterator[None]:
    scene.job.limit_cpu(0.5 * len(scene.job.cpus))
    try:
        yield
    finally:
        scene.job.limit_cpu(None)


@contextmanager
def _misbound(scene: Scene) -> Iterator[None]:
    """Twice the work on one CPU: all processes on the first of two CPUs, or a second copy on the only one."""
    if len(scene.job.cpus) > 1:
        for process in scene.job.processes():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(process, scene.job.cpus[:1])
        yield
        for process in scene.job.processes():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(process, scene.job.cpus)
        return
    before = set(scene.job.processes())
    copy = scene.start_program()
    scene.spared.append(copy)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(copy, signal.SIGKILL)
        _send([process for process in scene.job.processes() if process in _descendants(copy) - before], signal.SIGKILL)


def _descendants(ancestor: int) -> set[int]:
    """All processes that still have this session: a copy of the program is a session of its own."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError, ValueError):
            if int(path.read_text().rpartition(")")[2].split()[3]) == ancestor:
                found.add(int(path.parent.name))
    return found


@contextmanager
def _swapping(scene: Scene) -> Iterator[None]:
    """The job may keep less and less memory until it waits for pages; the rest goes to a swap file."""
    file = scene.scratch / _SWAP_FILE
    with file.open("wb") as out:
        os.posix_fallocate(out.fileno(), 0, _SWAP_BYTES)
    file.chmod(0o600)
    for command in (["mkswap", str(file)], ["swapon", str(file)]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SettingsError(f"{' '.join(command)}: {done.stderr.strip()}")
    over = threading.Event()
    presser = threading.Thread(target=_press, args=(scene.job, over), daemon=True)
    presser.start()
    try:
        yield
    finally:
        over.set()
        presser.join()
        scene.job.limit_memory(scene.memory_limit_bytes)
        release_swap(scene.scratch)


def release_swap(scratch: Path) -> None:
    """Give the swap file back, also that of a run that was killed."""
    file = scratch / _SWAP_FILE
    if file.exists():
        subprocess.run(["swapoff", str(file)], capture_output=True, check=False)
        file.unlink()


def _press(group: JobGroup, over: threading.Event) -> None:
    """Lower the limit every second until the job waits for enough pages; raise it a little when it waits for too many.

    How much memory a program really uses differs: a fixed part of what it holds would leave most programs unharmed.
    """
    limit_bytes, faults = group.memory_bytes(), group.major_faults()
    while not over.wait(1.0):
        before, faults = faults, group.major_faults()
        if faults - before < _FAULTS_PER_S[0]:
            limit_bytes = max(round(limit_bytes * 0.8), _LEAST_MEMORY_BYTES)
        elif faults - before > _FAULTS_PER_S[1]:
            limit_bytes = round(limit_bytes * 1.05)
        with suppress(SettingsError):  # the kernel refuses while it cannot write pages fast enough
            group.limit_memory(limit_bytes)


FAULTS: dict[str, ZooFault] = {
    "cpu-contention": ZooFault(
        "another program computes on the job's CPU", "cpu-contention", _beside("stress-ng", "--cpu", "1", "-q")
    ),
    "cache-contention": ZooFault(
        "another program on the job's CPU empties the caches",
        "cpu-contention",
        _beside("stress-ng", "--cache", "1", "-q"),
    ),
    "bandwidth-contention": ZooFault(
        "another program on the job's CPU copies memory", "cpu-contention", _beside("stress-ng", "--stream", "1", "-q")
    ),
    "leak-5": ZooFault("a process of the job grows by 5 MB/s", "leak", _leak(5.0)),
    "leak-50": ZooFault("a process of the job grows by 50 MB/s, up to 8 GB", "leak", _leak(50.0)),
    "memory-eater": ZooFault(
        "another program on the job's CPU takes 4 GB and writes to them",
        "cpu-contention",
        _beside("stress-ng", "--vm", "1", "--vm-bytes", _EATEN, "--vm-keep", "-q"),
    ),
    "io-hog": ZooFault(
        "two writers on the job's CPU bypass the page cache of the job's disk",
        "stalled-io",
        _beside(
            *("fio", "--name=hog", "--size=256m", "--rw=randrw", "--bs=64k", "--direct=1", "--ioengine=psync"),
            *("--numjobs=2", "--time_based", "--runtime=3600", "--fsync=8"),
        ),
    ),
    "metadata-hog": ZooFault(
        "another program on the job's CPU creates and removes files on the job's disk",
        "cpu-contention",
        _beside("stress-ng", "--dentry", "1", "--dentries", "4096", "-q"),
    ),
    "throttled": ZooFault("a quota leaves the job half of its CPU time", "throttled", _throttled),
    "misbound": ZooFault("two processes that need a CPU each share one", "misbound", _misbound),
    "swapping": ZooFault("the job may keep less memory than it uses; the rest is swapped", "swapping", _swapping),
    "stopped-rank": ZooFault("the busiest process is stopped", "idle", _stopped),
    "blocked-rank": ZooFault(
        "the busiest process is stopped, and a read of the job is not answered", "stalled-io", _blocked
    ),
    "spinning": ZooFault(
        "threads that run spin where they are, and the others wait", "spinning", _spinning, longer=_LONGER
    ),
    "finished": ZooFault("all processes have ended; the job keeps its CPUs", "idle", _finished),
    "straggler-x1.5": ZooFault("the program needs 1.5 times as long", "straggler", _slowed(1.5)),
    "straggler-x2": ZooFault("the program needs twice as long", "straggler", _slowed(2.0)),
}


def find_fault(name: str) -> ZooFault:
    if name not in FAULTS:
        raise SettingsError(f"unknown fault {name!r}; available faults: {', '.join(FAULTS)}")
    return FAULTS[name]
