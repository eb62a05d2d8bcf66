"""Run one job: type, CPUs and seconds -> pinned programs that end on time and leave no process or file behind.

    python -m clustertwin.telemetry.campaign.supervisor --type np --cpus 0,1 --seconds 120 --scratch DIR

This process is the subreaper of everything that the programs start, including orphans. It kills all descendants at the
end of the job, when it receives SIGTERM or SIGINT, and when the process that started it dies.
Exit 0: the job ran until its end. Exit 1: a program ended early; its last output is printed.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from clustertwin.core.errors import OutputError, SettingsError, TwinError
from clustertwin.telemetry.campaign.catalogue import JobSpec, find_type
from clustertwin.telemetry.campaign.jobs.pinning import cpu_list, pin, this_nodes_cpus
from clustertwin.telemetry.campaign.jobs.workers import die_with_parent

PR_SET_CHILD_SUBREAPER = 36
SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
FILE_CAP_BYTES = 256 << 20
SCRATCH_PER_CPU_BYTES = 128 << 20  # the most that the job programs write, per CPU
FREE_AFTER_BYTES = 512 << 20
GRACE_S = 2.0  # between SIGTERM and SIGKILL


def supervise(job: JobSpec) -> str:
    """Run the job to its end; returns an empty string, or the reason if it ended early.

    The function takes over the signals and children of its process, so it needs a process of its own.
    """
    _check_free_space(job)
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    deadline_s = time.monotonic() + job.seconds
    programs: list[subprocess.Popen[bytes]] = []
    stderr = job.scratch / "stderr.txt"
    try:
        with stderr.open("wb") as err:
            for command in find_type(job.type).commands(job):
                programs.append(_start(command, err.fileno()))
        reason = _wait(programs, deadline_s)
        return f"{reason}: {_last_output(stderr)}" if reason else ""
    finally:
        _end(programs)


def _check_free_space(job: JobSpec) -> None:
    free = shutil.disk_usage(job.scratch).free
    needed = SCRATCH_PER_CPU_BYTES * len(job.cpus) + FREE_AFTER_BYTES
    if free < needed:
        raise OutputError(
            f"{job.scratch}: {free >> 20} MB free, but a job on {len(job.cpus)} CPUs needs {needed >> 20} MB"
        )


def _start(command: list[str], err: int) -> subprocess.Popen[bytes]:
    # mpiexec would pass this node's name to ranks on other nodes, which must find their own.
    environment = {name: value for name, value in os.environ.items() if name != "SLURMD_NODENAME"}
    # Without these, BLAS starts one thread per CPU of the host in every worker.
    single_threaded = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=err,
        env=environment | single_threaded,
        preexec_fn=_in_child,
        process_group=0,
    )


def _in_child() -> None:
    die_with_parent()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_CAP_BYTES, FILE_CAP_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _wait(programs: list[subprocess.Popen[bytes]], deadline_s: float) -> str:
    """Sleep until the deadline; returns the reason if the job ends before."""
    while (left_s := deadline_s - time.monotonic()) > 0:
        received = signal.sigtimedwait(SIGNALS, left_s)
        if received and received.si_signo != signal.SIGCHLD:
            return f"stopped by {signal.Signals(received.si_signo).name}"
        for program in programs:
            if program.poll() is not None:
                return f"{' '.join(map(str, program.args[:4]))} ended early with exit code {program.returncode}"  # type: ignore[index]
    return ""


def _end(programs: list[subprocess.Popen[bytes]]) -> None:
    """Terminate the programs, then kill all descendants until none is left."""
    for program in programs:
        if program.poll() is None:
            program.terminate()
    end_s = time.monotonic() + GRACE_S
    while any(program.poll() is None for program in programs) and time.monotonic() < end_s:
        time.sleep(0.02)
    while _kill_and_reap():
        time.sleep(0.01)


def _kill_and_reap() -> bool:
    """Kill all children, including adopted orphans, and reap them; False if none is left."""
    for child in _children(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _children(pid: int) -> list[int]:
    children = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name in parentheses can contain any character; the parent is the second field after it.
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue  # the process ended in the meantime
        if parent == pid:
            children.append(int(path.parent.name))
    return children


def _last_output(path: Path) -> str:
    return path.read_text(errors="replace")[-2000:].strip() or "no error message"


def main(argv: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--type", required=True)
    options.add_argument("--cpus", type=cpu_list, default=tuple(sorted(os.sched_getaffinity(0))))
    options.add_argument("--seconds", type=float, required=True)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--scratch", type=Path, required=True, help="created for the job and removed after it")
    options.add_argument("--onset-s", type=float, default=0.0)
    options.add_argument("--ranks", type=int, default=0)
    options.add_argument("--parent", type=int, help="process id of the starter; the job ends with it")
    chosen = options.parse_args(argv)
    die_with_parent(signal.SIGTERM)
    if chosen.parent not in (None, os.getppid()):
        return 1  # the parent died before the kernel was asked to report its death
    created = not chosen.scratch.exists()
    try:
        if not created:
            raise SettingsError(f"{chosen.scratch} already exists; a job needs a scratch directory of its own")
        chosen.scratch.mkdir(parents=True)
        cpus = this_nodes_cpus(chosen.cpus)
        pin(cpus)
        job = JobSpec(chosen.type, cpus, chosen.seconds, chosen.seed, chosen.scratch, chosen.onset_s, chosen.ranks)
        failure = supervise(job)
    except TwinError as error:
        failure = str(error)
    finally:
        if created:
            shutil.rmtree(chosen.scratch, ignore_errors=True)
    sys.stderr.write(f"{failure}\n" if failure else "")
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
