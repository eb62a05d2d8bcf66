"""/proc/stat -> seconds of every hardware thread by mode, and what the scheduler counts for the whole node.

The threads are the hot path of the exporter: one split, one join.

The kernel counts ticks of 1/USER_HZ second; they are written as `1234e-2`, without a conversion. Guest time is
part of `user` and `nice` and is not repeated. When a thread appears or disappears, the frame of the text is rebuilt.
"""

from __future__ import annotations

import os
import re

from clustertwin.core.errors import InputError
from clustertwin.telemetry.exporter.text.kernelfile import read_file
from clustertwin.telemetry.exporter.text.text_format import family

MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
USER_HZ = os.sysconf("SC_CLK_TCK")

_LINE = re.compile(rb"cpu(0|[1-9]\d{0,5})((?: +\d{1,20}){4,}) *\n")
_NAME = "twin_cpu_seconds_total"
_HEAD = family(_NAME, "counter", "Seconds each hardware thread spent in each mode.")

#: The kernel's word -> our metric, its type and its help.
SCHEDULER: dict[bytes, tuple[str, str, str]] = {
    b"ctxt": ("twin_context_switches_total", "counter", "Changes from one task to another."),
    b"procs_running": ("twin_tasks_running", "gauge", "Tasks that run or wait for a CPU."),
    b"procs_blocked": ("twin_tasks_blocked", "gauge", "Tasks that wait for I/O and cannot be interrupted."),
}
_HEADS = {word: family(*row) for word, row in SCHEDULER.items()}
_SCHEDULER_LINE = re.compile(rb"^(ctxt|procs_running|procs_blocked) (\d{1,20})$", re.M)


def scheduler_samples(stat: bytes) -> dict[bytes, bytes]:
    """The kernel's word -> its sample line, from the lines of a whole /proc/stat after those of threads."""
    after = max(stat.find(b"\nctxt "), 0)  # behind the line of interrupts, which is long
    return {
        word: b"%b %b\n" % (SCHEDULER[word][0].encode(), count) for word, count in _SCHEDULER_LINE.findall(stat, after)
    }


def cpu_lines(stat: bytes) -> bytes:
    """The lines of single threads, from `cpu0 …` to the last, out of a whole /proc/stat."""
    start = stat.find(b"\n") + 1 if stat.startswith(b"cpu ") else 0
    end = stat.find(b"\nintr ", start)
    if end >= 0:
        return stat[start : end + 1]
    return b"".join(line for line in stat[start:].splitlines(keepends=True) if line.startswith(b"cpu"))


def parse_cpu_lines(lines: bytes, faults: list[str]) -> dict[int, tuple[int, ...]]:
    """Thread number -> its ticks in the kernel's order. A line that cannot be read is added to `faults`."""
    ticks: dict[int, tuple[int, ...]] = {}
    width = 0
    for line in lines.splitlines(keepends=True):
        match = _LINE.fullmatch(line)  # a line that was cut off may end inside a number
        row = tuple(map(int, match[2].split())) if match else ()
        width = width or len(row)
        if match and int(match[1]) not in ticks and len(row) == width:
            ticks[int(match[1])] = row
        else:
            excerpt = line[:60].decode("ascii", "backslashreplace")
            faults.append(f"/proc/stat: not a new thread with {width or 'ten'} counts: {excerpt!r}")
    return ticks


class CpuCollector:
    """CPU time of every thread, and the scheduler's counts.

    For the ring, `lines` holds the lines of threads read last, unchanged, and `samples` those of the scheduler.
    """

    reads = "CPU time of every hardware thread, run queue and context switches, from /proc/stat"

    def __init__(self, rootfs: str, user_hz: int = USER_HZ) -> None:
        self._path = os.path.join(rootfs, "proc/stat")
        self._exponent = {1000: "e-3", 100: "e-2"}.get(user_hz)
        self._user_hz = user_hz
        self._names: list[bytes] = []
        self._width = 0
        self._plain = b""  # valid lines without their digits, blanks and line ends
        self._frame: list[bytes] = []  # text, value, text, value … text
        self._scheduler: dict[bytes, bytes] = {}
        self.lines = b""

    @property
    def samples(self) -> bytes:
        return b"".join(self._scheduler.values())

    def read(self) -> bytes:
        """Read the kernel's lines now."""
        self.lines, self._scheduler = b"", {}
        stat = read_file(self._path)
        self.lines, self._scheduler = cpu_lines(stat), scheduler_samples(stat)
        if not self.lines:
            raise InputError(self._path, "it has no line of a single thread (cpu0 …)")
        return self.lines

    def collect(self, faults: list[str]) -> bytes:
        lines = self.read()
        tokens = lines.split()  # name, ticks…, name, ticks…
        is_known_layout = (
            len(tokens) == len(self._names) * self._width
            and tokens[:: self._width] == self._names
            and lines.endswith(b"\n")
            and lines.translate(None, b"0123456789 \n") == self._plain
        )
        if not is_known_layout or self._exponent is None:
            tokens = self._rebuild_frame(lines, faults)
        modes = min(self._width - 1, len(MODES))
        for i in range(modes):
            self._frame[2 * i + 1 :: 2 * modes] = tokens[i + 1 :: self._width]
        return b"".join(self._frame) + b"".join([_HEADS[word] + line for word, line in self._scheduler.items()])

    def _rebuild_frame(self, lines: bytes, faults: list[str]) -> list[bytes]:
        """Check every line and build the frame for the threads that there are now. This is slow."""
        ticks = parse_cpu_lines(lines, faults)
        if not ticks:
            raise InputError(self._path, "no line of a thread can be read")
        rows = [(b"cpu%d" % cpu, *(self._seconds(tick) for tick in row)) for cpu, row in ticks.items()]
        self._names = [row[0] for row in rows]
        self._width = len(rows[0])
        self._plain = b"cpu" * len(rows)
        end = f"{self._exponent or ''}\n"
        starts = [f'{_NAME}{{cpu="{cpu}",mode="{mode}"}} ' for cpu in ticks for mode in MODES[: self._width - 1]]
        texts = [_HEAD + starts[0].encode(), *((end + start).encode() for start in starts[1:]), end.encode()]
        self._frame = [part for text in texts for part in (text, b"")][:-1]
        return [token for row in rows for token in row]

    def _seconds(self, tick: int) -> bytes:
        return b"%d" % tick if self._exponent else repr(tick / self._user_hz).encode()
