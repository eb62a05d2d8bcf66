"""Record one run: a program, faults and a schedule -> a raw run with labels.

The program runs alone in a group that is bound to the recorded CPUs. The recorder itself runs on the other CPUs.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clustertwin.core.errors import SettingsError, TwinError, describe
from clustertwin.telemetry.campaign.zoo.job_group import JobGroup, job_group
from clustertwin.telemetry.campaign.zoo.kernel_counters import process_names, read_counters
from clustertwin.telemetry.campaign.zoo.look_taker import looking, takes_of
from clustertwin.telemetry.campaign.zoo.program_inputs import prepare_inputs, program_environment, version_of
from clustertwin.telemetry.campaign.zoo.program_table import ZooProgram, find_program
from clustertwin.telemetry.campaign.zoo.raw_run import RawWriter, run_name
from clustertwin.telemetry.campaign.zoo.recorded_look import RecordedLook
from clustertwin.telemetry.campaign.zoo.zoo_faults import Scene, device_of, find_fault, release_swap

MEMORY_LIMIT_BYTES = 10 << 30
_LOCKS = Path("/run")
_BUSY = ("user", "nice", "system", "irq", "softirq")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
LOOKS_CPU = "looks/cpuacct.usage"
_MOST_FAILURES = 2  # of a program in the healthy phase
_SCHEDULER_FIRST = -10  # the recorder must not be late while other work runs on its CPUs


@dataclass(frozen=True, slots=True)
class RunSchedule:
    """Seconds of each phase: healthy, then every fault with a recovery between two of them."""

    healthy_s: float = 300.0
    fault_s: float = 150.0
    recovery_s: float = 40.0


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run of the queue."""

    program: str
    number: int  # of the runs of this program
    faults: tuple[str, ...]
    threads: int = 1  # recorded CPUs; MPI programs have as many ranks

    @property
    def name(self) -> str:
        """`lammps-0`; on several CPUs `lammps-2cpu-0`."""
        return run_name(self.program, self.number, self.threads)


@contextmanager
def owning(cpus: Sequence[int], locks: Path = _LOCKS) -> Iterator[None]:
    """Keep other recorders off these CPUs: they would end the processes of this one."""
    with ExitStack() as held:
        for cpu in cpus:
            file = held.enter_context((locks / f"clustertwin-zoo-cpu{cpu}.lock").open("ab"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SettingsError(f"another process records programs on CPU {cpu}; choose other --cpus") from None
        yield


class _RunningProgram:
    """Copies of a program that repeat until their group ends, each in a folder of its own."""

    def __init__(self, program: ZooProgram, group: JobGroup, inputs: Path, scratch: Path) -> None:
        self._program, self._group, self._inputs, self._scratch = program, group, inputs, scratch
        self._copies = 0
        self.exit_codes = scratch / "exit-codes"
        self.output = scratch / "output"

    def start(self) -> int:
        """Start one copy; returns the shell that repeats it."""
        folder = self._scratch / f"copy-{self._copies}"
        folder.mkdir()
        self._copies += 1
        body = f"{{ {self._program.command}\n}} >{self.output} 2>&1 </dev/null; code=$?; echo $code >>{self.exit_codes}"
        script = f"while :; do\n{body}\n[ $code = 0 ] || sleep 1\ndone"
        return subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder,
            env=program_environment(self._inputs, len(self._group.cpus), self._program.kind),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=self._group.enter,
            start_new_session=True,
        ).pid

    def failures(self) -> int:
        """How often the program ended with an error that was not a signal of ours."""
        codes = self.exit_codes.read_text().split() if self.exit_codes.exists() else []
        return sum(0 < int(code) < 128 for code in codes)

    def last_output(self) -> str:
        return self.output.read_text(errors="replace")[-800:].strip() if self.output.exists() else ""


def record_run(run: PlannedRun, schedule: RunSchedule, cpus: Sequence[int], *, cache: Path, path: Path) -> None:
    """Record a run to `path`. A run whose program fails while it is healthy is refused, and leaves no file."""
    program = find_program(run.program)
    place = "-".join(map(str, cpus))
    scratch = cache / f".scratch-{place}"
    writer = RawWriter(path, _header(run, schedule, program, cpus))
    try:
        inputs = prepare_inputs(run.program, cache)
        release_swap(scratch)
        shutil.rmtree(scratch, ignore_errors=True)  # left by a run that was killed
        scratch.mkdir()
        _leave(cpus)
        with (
            job_group(f"zoo-job-{place}", cpus) as job,
            job_group(f"zoo-neighbours-{place}", cpus) as neighbours,
            job_group(f"zoo-looks-{place}", sorted(os.sched_getaffinity(0))) as beside,
            looking(takes_of(job, beside)) as new_looks,
        ):
            job.limit_memory(MEMORY_LIMIT_BYTES)
            # Recent kernels count the I/O of groups only after a limit was set for the device, even if it is none.
            with suppress(OSError, SettingsError):  # a scratch directory in memory has no device
                job.limit_reads(device_of(scratch), 0)
            running = _RunningProgram(program, job, inputs, scratch)
            of_one_rank = program.kind == "MPI"
            scene = Scene(job, neighbours, scratch, running.start, [], of_one_rank, MEMORY_LIMIT_BYTES)
            imposed = _record(run, schedule, scene, writer, running, beside, new_looks)
        os.sched_setaffinity(0, cpus)  # packing takes seconds, and another run may be recorded on the other CPUs
        writer.finish(
            {
                "imposed": imposed.labels,
                "failures": running.failures(),
                "process_names": sorted(imposed.process_names),
                **imposed.shares(cpus, beside.cpus),
            }
        )
    except BaseException:
        writer.abandon()
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _leave(cpus: Sequence[int]) -> None:
    """Keep this process off the recorded CPUs if there are others, and ahead of other work on them."""
    others = set(range(os.cpu_count() or 1)) - set(cpus)
    os.sched_setaffinity(0, others or cpus)
    os.setpriority(os.PRIO_PROCESS, 0, _SCHEDULER_FIRST)


def _header(run: PlannedRun, schedule: RunSchedule, program: ZooProgram, cpus: Sequence[int]) -> dict[str, Any]:
    return {
        "format": 2,
        **asdict(run),
        "kind": program.kind,
        "about": program.about,
        "command": program.command,
        "version": version_of(program),
        "cpus": list(cpus),
        "schedule": asdict(schedule),
        "started_s": time.time(),
        "kernel": ".".join(platform.release().split(".")[:2]),
        "cpu_count": os.cpu_count(),
        "units": {"ticks_per_s": _TICKS_PER_S, "page_bytes": os.sysconf("SC_PAGE_SIZE")},
    }


class _Imposed:
    """What was imposed and when, and the CPU seconds of the first and the last healthy second."""

    def __init__(self) -> None:
        self.labels: list[dict[str, Any]] = []
        self.healthy: list[Mapping[str, int]] = []
        self.process_names: set[str] = set()
        self.error: BaseException | None = None

    def shares(self, cpus: Sequence[int], cpus_of_looks: Sequence[int]) -> dict[str, float]:
        """CPU seconds of the healthy phase: of the recorded CPUs, the job, the looks at it, and other work."""
        first, last = self.healthy[0], self.healthy[-1]
        names = [f"stat/cpu{cpu}/{mode}" for cpu in cpus for mode in _BUSY]
        busy_s = sum(last[name] - first[name] for name in names) / _TICKS_PER_S
        job_s, looks_s = ((last[name] - first[name]) / 1e9 for name in ("job/cpuacct.usage", LOOKS_CPU))
        known_s = job_s + looks_s * (set(cpus_of_looks) <= set(cpus))
        elapsed_s = sum(last[n] - first[n] for cpu in cpus for n in _all_modes(cpu)) / _TICKS_PER_S
        return {
            "healthy_cpu_s": round(elapsed_s, 2),
            "busy_s": round(busy_s, 2),
            "job_s": round(job_s, 2),
            "looks_s": round(looks_s, 2),
            "foreign_s": round(max(busy_s - known_s, 0.0), 2),
        }


def _all_modes(cpu: int) -> list[str]:
    return [f"stat/cpu{cpu}/{mode}" for mode in (*_BUSY, "idle", "iowait", "steal")]


def _record(
    run: PlannedRun,
    schedule: RunSchedule,
    scene: Scene,
    writer: RawWriter,
    running: _RunningProgram,
    beside: JobGroup,
    new_looks: Callable[[], list[RecordedLook]],
) -> _Imposed:
    imposed, over = _Imposed(), threading.Event()
    director = threading.Thread(target=_direct, args=(run, schedule, scene, imposed, over), daemon=True)
    groups = {"job": scene.job, "neighbours": scene.neighbours}
    director.start()
    started_s = time.monotonic()
    try:
        while director.is_alive():
            time.sleep(1.0 - time.time() % 1.0)
            now_s = time.time()
            sample = read_counters(groups) | {LOOKS_CPU: beside.cpu_ns()}
            writer.add(now_s, sample)
            for look in new_looks():
                writer.add_look(look)
            if time.monotonic() - started_s < schedule.healthy_s:
                imposed.healthy = [*imposed.healthy[:1], sample]
                imposed.process_names |= process_names(scene.job)
                if running.failures() > _MOST_FAILURES:
                    raise SettingsError(f"{run.program} fails: {running.last_output()}")
    finally:
        over.set()  # a fault is undone before its groups are removed
        director.join()
    if imposed.error:
        raise imposed.error
    return imposed


def _direct(run: PlannedRun, schedule: RunSchedule, scene: Scene, imposed: _Imposed, over: threading.Event) -> None:
    """Start the program, and impose the faults one after the other."""
    try:
        scene.spared.append(scene.start_program())
        over.wait(schedule.healthy_s)
        for place, name in enumerate(run.faults):
            if over.is_set():
                return
            if place:
                over.wait(schedule.recovery_s)
            fault, onset_s = find_fault(name), time.time()
            label: dict[str, Any] = {"fault": name, "cause": fault.cause, "onset_s": round(onset_s, 3)}
            try:
                with fault.impose(scene):
                    label["imposed_s"] = round(time.time(), 3)
                    over.wait(schedule.fault_s * fault.longer)
                    label["end_s"] = round(time.time(), 3)
            except TwinError as error:
                label |= {"end_s": round(time.time(), 3), "error": describe(error)}
            imposed.labels.append(label)
        over.wait(5.0)
    except BaseException as error:
        imposed.error = error


def stop_on_signals() -> None:
    """Let SIGTERM end a run like an interrupt, so that its groups and files are removed."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
