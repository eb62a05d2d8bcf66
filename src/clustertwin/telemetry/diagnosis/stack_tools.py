"""The stacks of a process: a snapshot that eu-stack unwinds, and py-spy, within limits of time -> a `Stack`.

`stack_snapshot` stops the process for a fraction of a millisecond. eu-stack then unwinds the copy, which exists only in
memory. py-spy reads with --nonblocking and stops nothing. A process that is stopped already, or that waits in the
kernel without signals (state D), is not attached to: the attach would wait for it.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from clustertwin.telemetry.diagnosis.evidence import MOST_FRAMES, Stack, clean
from clustertwin.telemetry.diagnosis.kernel.ptrace import CannotAttach
from clustertwin.telemetry.diagnosis.process_files import look, maps_of
from clustertwin.telemetry.diagnosis.stack_snapshot import core_file, snapshots

TIMEOUT_S = 3.0
MAX_OUTPUT = 1 << 20
#: Where the system's libraries are. The place in one of them says nothing about the program.
SYSTEM = ("/usr/lib", "/lib", "/dev/", "/memfd:", "/SYSV")
_FRAME = re.compile(r"^#\d+\s+0x([0-9a-f]+)(?:\s+-\s+1)?(?:\s+(\S.*))?$")


@dataclass(frozen=True, slots=True)
class NativeStack:
    frames: tuple[str, ...]
    stopped_s: float
    note: str = ""


@cache
def tool(name: str) -> str | None:
    """The path of a tool; a tool beside this Python counts."""
    beside = os.path.join(os.path.dirname(sys.executable), name)
    return shutil.which(name) or (beside if os.access(beside, os.X_OK) else None)


def native_stack(pid: int, cpu_s: float = 1.0, thread: int | None = None) -> NativeStack:
    """The stack of a thread; by default of the first one."""
    path = tool("eu-stack")
    if path is None:
        return NativeStack((), 0.0, "eu-stack is not installed")
    try:
        (moment,) = snapshots([thread or pid])
        core = core_file(pid, moment)
    except NotImplementedError:
        return NativeStack((), 0.0, "native stacks are read on x86_64 only")
    except CannotAttach as error:
        return NativeStack((), 0.0, f"the native stack could not be read: {error}")
    modules = program_modules(pid)
    frames = parse_eu_stack(_unwind(path, core, cpu_s), modules)
    note = "" if frames else "eu-stack could not read the stack"
    return NativeStack(frames, moment.stopped_s, note)


def python_stack(pid: int, cpu_s: float = 1.0) -> tuple[str, ...]:
    """The main thread's Python frames; empty for a program without Python, or without py-spy."""
    path = tool("py-spy")
    if path is None or not is_python(pid):
        return ()
    return parse_py_spy(run_tool([path, "dump", "--nonblocking", "--json", "--pid", str(pid)], cpu_s), pid)


def stack_of(pid: int, state: str, cpu_s: float = 1.0) -> tuple[Stack, float, str]:
    """Both stacks of a process in this state, how long it was stopped, and why a part is missing.

    Each tool may use `cpu_s` of CPU time.
    """
    if state in "Tt":
        return Stack(python=python_stack(pid, cpu_s)), 0.0, "a stopped process is not attached to"
    if state == "D":
        return Stack(python=python_stack(pid, cpu_s)), 0.0, "a process in state D cannot be attached to"
    native = native_stack(pid, cpu_s)
    return Stack(native.frames, python_stack(pid, cpu_s)), native.stopped_s, native.note


def run_tool(command: Sequence[str], cpu_s: float, pass_fds: Sequence[int] = ()) -> bytes:
    """The output of a tool; nothing if it fails. It is killed if it uses too much time, and if it prints too much.

    It reads what a user made: the names of functions in a program may have gigabytes.
    """
    end_s, output = time.monotonic() + TIMEOUT_S, bytearray()
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"LC_ALL": "C"},
            pass_fds=pass_fds,
        ) as running:
            assert running.stdout is not None
            pipe = running.stdout.fileno()
            try:
                while len(output) < MAX_OUTPUT and time.monotonic() < end_s:
                    if select.select([pipe], [], [], 0.05)[0]:
                        piece = os.read(pipe, 1 << 16)
                        if not piece:
                            return bytes(output)
                        output += piece
                    elif (seen := look(running.pid)) is not None and seen.cpu_s > cpu_s:
                        break
                return bytes(output[:MAX_OUTPUT]) if len(output) >= MAX_OUTPUT else b""
            finally:
                running.kill()
    except OSError:
        return b""


def is_python(pid: int) -> bool:
    return any(b"python" in words[5] for words in maps_of(pid) if len(words) > 5)


def program_modules(pid: int) -> list[tuple[int, int, str]]:
    """(begin, end, name) of the program and of libraries that are not the system's, at their load addresses."""
    spans: dict[str, tuple[int, int]] = {}
    for words in maps_of(pid):
        path = words[5].decode("utf-8", "replace") if len(words) > 5 else ""
        if path.startswith("/") and not path.startswith(SYSTEM):
            begin, end = (int(part, 16) for part in words[0].split(b"-"))
            low, high = spans.get(path, (begin, end))
            spans[path] = (min(low, begin), max(high, end))
    return [(begin, end, os.path.basename(path)) for path, (begin, end) in spans.items()]


def parse_eu_stack(text: str, modules: Sequence[tuple[int, int, str]] = ()) -> tuple[str, ...]:
    """The names of the functions, the innermost first; those of the program with their place in it.

    >>> parse_eu_stack("PID 7 - process\\nTID 7:\\n#0  0x00007f52e310c017 read\\n#1  0x0000000000401126\\n")
    ('read', '?')
    >>> parse_eu_stack("#0  0x0000000000401126 main\\n", [(0x400000, 0x402000, "solver")])
    ('main [solver+0x1126]',)
    """
    frames = []
    for line in text.splitlines():
        if match := _FRAME.match(line.rstrip()):
            address = int(match[1], 16)
            name = (match[2] or "?").partition("@")[0]
            place = next((f" [{file}+0x{address - low:x}]" for low, end, file in modules if low <= address < end), "")
            frames.append(clean(name + place))
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


def _unwind(path: str, core: bytes, cpu_s: float) -> str:
    """The output of eu-stack for a core that is never on a disk: it contains memory of the user's program."""
    descriptor = os.memfd_create("core", os.MFD_CLOEXEC)
    try:
        rest = memoryview(core)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        command = [path, "-n", str(2 * MOST_FRAMES), f"--core=/proc/self/fd/{descriptor}"]
        return run_tool(command, cpu_s, (descriptor,)).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)
