"""Run one job: its type, CPUs and seconds -> its programs pinned, ended on time, and nothing left behind.

    python -m clustertwin.telemetry.campaign.supervisor --type np --cpus 0,1 --seconds 120 --scratch DIR

Every process that the programs start, and every orphan they leave, is a descendant of this process (it is their
subreaper), and all are killed when the time has come, when it is told to stop, or when the one who started it dies.
Exit 0: the job worked until its end. Exit 1: a program ended by itself before, and its last words are printed.
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
from clustertwin.telemetry.campaign.catalogue import Job, find_type
from clustertwin.telemetry.campaign.jobs.workers import die_with_parent
from clustertwin.telemetry.campaign.pinning import cpu_list, pin, this_nodes_cpus

PR_SET_CHILD_SUBREAPER = 36
WATCHED = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
FILE_CAP_BYTES = 256 << 20
SCRATCH_PER_CPU_BYTES = 128 << 20  # what the job programs write at most, per CPU
FREE_AFTER_BYTES = 512 << 20
GRACE_S = 2.0  # between the polite signal and the other


def supervise(job: Job) -> str:
    """Run the job to its end; empty if it worked all the time, or what went wrong.

    It takes over the process's signals and children, so it is for a process of its own.
    """
    _check_room(job)
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    deadline_s = time.monotonic() + job.seconds
    programs: list[subprocess.Popen[bytes]] = []
    words = job.scratch / "stderr.txt"
    try:
        with words.open("wb") as err:
            for command in find_type(job.type).commands(job):
                programs.append(_start(command, err.fileno()))
        early = _watch(programs, deadline_s)
        return f"{early}: {_last_words(words)}" if early else ""
    finally:
        _end(programs)


def _check_room(job: Job) -> None:
    free = shutil.disk_usage(job.scratch).free
    needed = SCRATCH_PER_CPU_BYTES * len(job.cpus) + FREE_AFTER_BYTES
    if free < needed:
        raise OutputError(f"{job.scratch}: {free >> 20} MB free, a job on {len(job.cpus)} CPUs wants {needed >> 20} MB")


def _start(command: list[str], err: int) -> subprocess.Popen[bytes]:
    # MPI's launcher would hand our node's name to ranks on other nodes, which must find their own.
    mine = {name: value for name, value in os.environ.items() if name != "SLURMD_NODENAME"}
    # One thread per worker, whatever BLAS thinks of the host.
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=err,
        env=mine | single,
        preexec_fn=_in_child,
        process_group=0,
    )


def _in_child() -> None:
    die_with_parent()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_CAP_BYTES, FILE_CAP_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _watch(programs: list[subprocess.Popen[bytes]], deadline_s: float) -> str:
    """Sleep until the deadline; a word on why, if it is over before."""
    while (left_s := deadline_s - time.monotonic()) > 0:
        heard = signal.sigtimedwait(WATCHED, left_s)
        if heard and heard.si_signo != signal.SIGCHLD:
            return f"told to stop by {signal.Signals(heard.si_signo).name}"
        for program in programs:
            if program.poll() is not None:
                return f"{' '.join(map(str, program.args[:4]))} ended early with {program.returncode}"  # type: ignore[index]
    return ""


def _end(programs: list[subprocess.Popen[bytes]]) -> None:
    """Ask the programs to stop, then kill every descendant until there is none."""
    for program in programs:
        if program.poll() is None:
            program.terminate()
    end_s = time.monotonic() + GRACE_S
    while any(program.poll() is None for program in programs) and time.monotonic() < end_s:
        time.sleep(0.02)
    while _reap_or_kill():
        time.sleep(0.01)


def _reap_or_kill() -> bool:
    """Kill our children, orphans included, and bury the dead; False when none is left."""
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
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name in parentheses may hold anything; the parent is the second word after it.
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue  # gone while we looked
        if parent == pid:
            found.append(int(path.parent.name))
    return found


def _last_words(path: Path) -> str:
    return path.read_text(errors="replace")[-2000:].strip() or "it said nothing"


def main(argv: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--type", required=True)
    options.add_argument("--cpus", type=cpu_list, default=tuple(sorted(os.sched_getaffinity(0))))
    options.add_argument("--seconds", type=float, required=True)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--scratch", type=Path, required=True, help="made for the job and removed after it")
    options.add_argument("--onset-s", type=float, default=0.0)
    options.add_argument("--ranks", type=int, default=0)
    options.add_argument("--parent", type=int, help="end with this process, which started us")
    chosen = options.parse_args(argv)
    die_with_parent(signal.SIGTERM)
    if chosen.parent not in (None, os.getppid()):
        return 1  # it died before the kernel knew that we care
    made = not chosen.scratch.exists()
    try:
        if not made:
            raise SettingsError(f"{chosen.scratch} exists; a job wants a scratch directory of its own")
        chosen.scratch.mkdir(parents=True)
        cpus = this_nodes_cpus(chosen.cpus)
        pin(cpus)
        job = Job(chosen.type, cpus, chosen.seconds, chosen.seed, chosen.scratch, chosen.onset_s, chosen.ranks)
        failure = supervise(job)
    except TwinError as error:
        failure = str(error)
    finally:
        if made:
            shutil.rmtree(chosen.scratch, ignore_errors=True)
    sys.stderr.write(f"{failure}\n" if failure else "")
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
