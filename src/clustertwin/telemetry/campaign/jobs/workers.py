"""One worker process per CPU: a function of (index, cpu) -> pinned processes that end together."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence

PR_SET_PDEATHSIG = 1


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Ask the kernel to send this signal when the parent dies, for whatever reason."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def run_workers(work: Callable[[int, int], None], cpus: Sequence[int]) -> int:
    """Fork one worker per CPU. When one ends, the others are killed; returns the exit code of the one that ended."""
    children = []
    for index, cpu in enumerate(cpus):
        child = os.fork()
        if child == 0:
            _become_worker(work, index, cpu)
        children.append(child)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        _, status = os.wait()
        return os.waitstatus_to_exitcode(status)
    finally:
        for child in children:
            _kill(child)


def _become_worker(work: Callable[[int, int], None], index: int, cpu: int) -> None:
    code = 1
    try:
        die_with_parent()
        os.sched_setaffinity(0, {cpu})
        work(index, cpu)
        code = 0
    except Exception as error:
        sys.stderr.write(f"worker {index} on CPU {cpu}: {error!r}\n")
    finally:
        sys.stderr.flush()
        os._exit(code)


def _kill(child: int) -> None:
    try:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    except (ProcessLookupError, ChildProcessError):
        pass  # this worker has already ended
