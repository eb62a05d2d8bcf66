"""The stacks of a process: eu-stack and py-spy, within limits of time -> a `Stack`.

eu-stack stops the process while it reads (about 15 ms on an idle machine). A watch measures this from the kernel's
TracerPid. It kills eu-stack at `MAX_STOP_S`, which lets the process run again. py-spy reads with --nonblocking and
stops nothing. A process that is stopped already, or that waits in the kernel without signals (state D), is not
attached to: the attach would wait for it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from clustertwin.telemetry.diagnosis.evidence import MOST_FRAMES, Stack, clean

MAX_STOP_S = 0.045
NATIVE_TIMEOUT_S = 1.0
PYTHON_TIMEOUT_S = 1.0
MAX_OUTPUT = 1 << 20
_FRAME = re.compile(r"^#\d+\s+0x([0-9a-f]+)(?:\s+-\s+1)?(?:\s+(\S.*))?$")


@dataclass(frozen=True, slots=True)
class NativeStack:
    frames: tuple[str, ...]
    stopped_s: float
    note: str = ""


@cache
def tool(name: str) -> str | None:
    """The path of a tool; a tool beside this Python counts."""
    import sys

    beside = os.path.join(os.path.dirname(sys.executable), name)
    return shutil.which(name) or (beside if os.access(beside, os.X_OK) else None)


def native_stack(pid: int, max_stop_s: float = MAX_STOP_S) -> NativeStack:
    """The main thread's stack. The process is stopped for at most about `max_stop_s`."""
    path = tool("eu-stack")
    if path is None:
        return NativeStack((), 0.0, "eu-stack is not installed")
    command = [path, "-1", "-n", str(2 * MOST_FRAMES), "-p", str(pid)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env={"LC_ALL": "C"}
    )
    stopped_s, killed = _watch(process, pid, max_stop_s)
    text = (process.stdout.read(MAX_OUTPUT) if process.stdout else b"").decode("utf-8", "replace")
    if process.stdout:
        process.stdout.close()
    process.wait()
    if killed:
        _wake(pid)
        return NativeStack((), stopped_s, f"reading the native stack took longer than {1000 * max_stop_s:.0f} ms")
    return NativeStack(parse_eu_stack(text), stopped_s)


def python_stack(pid: int) -> tuple[str, ...]:
    """The main thread's Python frames; empty for a program without Python, or without py-spy."""
    path = tool("py-spy")
    if path is None or not is_python(pid):
        return ()
    try:
        done = subprocess.run(
            [path, "dump", "--nonblocking", "--json", "--pid", str(pid)],
            capture_output=True,
            timeout=PYTHON_TIMEOUT_S,
            env={"LC_ALL": "C"},
        )
    except (subprocess.TimeoutExpired, OSError):
        return ()
    return parse_py_spy(done.stdout[:MAX_OUTPUT], pid)


def stack_of(pid: int, state: str) -> tuple[Stack, float, str]:
    """Both stacks of a process in this state, how long it was stopped, and why a part is missing."""
    if state in "Tt":
        return Stack(python=python_stack(pid)), 0.0, "a stopped process is not attached to"
    if state == "D":
        return Stack(python=python_stack(pid)), 0.0, "a process in state D cannot be attached to"
    native = native_stack(pid)
    return Stack(native.frames, python_stack(pid)), native.stopped_s, native.note


def is_python(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            text = file.read(1 << 20)
    except OSError:
        return False
    return b"python" in text


def parse_eu_stack(text: str) -> tuple[str, ...]:
    """The names of the functions, the innermost first.

    >>> parse_eu_stack("PID 7 - process\\nTID 7:\\n#0  0x00007f52e310c017 read\\n#1  0x00007f52e1f1bf95\\n")
    ('read', '?')
    """
    frames = []
    for line in text.splitlines():
        if match := _FRAME.match(line.rstrip()):
            frames.append(clean((match[2] or "?").partition("@")[0]))
    return tuple(frames[: 2 * MOST_FRAMES])


def parse_py_spy(data: bytes, pid: int) -> tuple[str, ...]:
    """`function (file:line)` for each frame of the main thread, the innermost first."""
    try:
        threads = json.loads(data)
        frames = next((t["frames"] for t in threads if t.get("os_thread_id") == pid), threads[0]["frames"])
        return tuple(
            clean(f"{frame['name']} ({frame.get('short_filename') or frame['filename']}:{frame['line']})")
            for frame in frames[:MOST_FRAMES]
        )
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return ()


def _watch(process: subprocess.Popen[bytes], pid: int, max_stop_s: float) -> tuple[float, bool]:
    """Wait for eu-stack to end. Kill it if it holds the process too long, or takes too long in all."""
    begin_s = time.monotonic()
    held_since_s: float | None = None
    last_s = begin_s
    while process.poll() is None:
        now_s = time.monotonic()
        held = _tracer(pid) == process.pid
        if held and held_since_s is None:
            held_since_s = last_s  # it may have been attached since the last check
        if held:
            last_held_s = now_s
        if (held_since_s is not None and held and now_s - held_since_s > max_stop_s) or (
            now_s - begin_s > NATIVE_TIMEOUT_S
        ):
            process.kill()
            process.wait()
            return time.monotonic() - (held_since_s or begin_s), True
        last_s = now_s
        time.sleep(0.0005 if not held else 0.001)
    return (last_held_s - held_since_s if held_since_s is not None else 0.0), False


def _wake(pid: int) -> None:
    """A tracer that is killed may leave its own SIGSTOP behind."""
    time.sleep(0.002)
    with suppress(OSError):
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
        if stat[stat.rfind(b")") + 2 :][:1] == b"T":
            os.kill(pid, signal.SIGCONT)


def _tracer(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            status = file.read(4096)
    except OSError:
        return 0
    _, _, rest = status.partition(b"TracerPid:\t")
    number = rest.partition(b"\n")[0]
    return int(number) if number.isdigit() else 0
