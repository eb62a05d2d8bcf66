"""A raw run on disk: samples of kernel counters and labels <-> one compressed file of JSON lines.

    {"program": "lammps", ...}        labels that are known at the start
    ["+", "stat/cpu1/user", ...]      names, numbered in the order of their appearance
    ["-", 17, 18]                     these names have no value any more
    [1794800000125, 0, 51, 3, -2]     milliseconds of the clock, then pairs: number of a name, change of its value
    ["@", 1794800000140, 2310, {...}] a look at the job's processes: when it began, milliseconds, evidence or null
    {"imposed": [...], ...}           labels that are known at the end; only a complete run has them

While a run is recorded its lines are appended to `NAME.jsonl`, which its recorder locks; a complete run is
`NAME.jsonl.xz`.
"""

from __future__ import annotations

import fcntl
import lzma
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson
from numpy.typing import NDArray

from clustertwin.core import files
from clustertwin.core.errors import InputError, RecordingError
from clustertwin.core.foreign_files import read_regular
from clustertwin.telemetry.campaign.zoo.recorded_look import MARK, RecordedLook, line_of, parse_line

SUFFIX = ".jsonl.xz"
_MOST_BYTES = 256 << 20  # of an unpacked run, and of its file
#: Of the dictionary of a file, which a reader needs too. Ours has 64 MB; a header can ask for 4 GB.
_MOST_MEMORY = 128 << 20
#: Names times samples. A short line repeats the values of all names.
_MOST_VALUES = 100_000_000
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]


@dataclass(frozen=True, slots=True)
class RawRun:
    """One run. `values` are NaN where a name has none: before a process starts and after it ends."""

    labels: Mapping[str, Any]
    times_s: NDArray[np.float64]  # (sample,) of the clock
    values: Mapping[str, NDArray[np.float64]]  # name -> (sample,)
    looks: tuple[RecordedLook, ...] = ()  # runs of format 1 have none


class RawWriter:
    """Append samples to a file; `finish` packs it."""

    def __init__(self, path: Path, labels: Mapping[str, Any]) -> None:
        self._packed, self._path = path, lines_of(path)
        self._numbers: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._file: BinaryIO = self._path.open("ab")
        if not _lock(self._file):
            self._file.close()
            raise RecordingError(self._path, "another process records this run")
        self._file.truncate(0)  # the lines of a recorder that was killed
        self._line(dict(labels))

    def add(self, time_s: float, sample: Mapping[str, int]) -> None:
        fresh = [name for name in sample if name not in self._numbers]
        if fresh:
            for name in fresh:
                self._numbers[name] = len(self._numbers)
            self._line(["+", *fresh])
        if gone := [name for name in self._last if name not in sample]:
            self._line(["-", *(self._numbers[name] for name in gone)])
            for name in gone:
                del self._last[name]
        changes: list[int] = [round(time_s * 1000)]
        for name, value in sample.items():
            if name not in self._last or value != self._last[name]:
                changes += (self._numbers[name], value - self._last.get(name, 0))
                self._last[name] = value
        self._line(changes)

    def add_look(self, look: RecordedLook) -> None:
        self._line(line_of(look))

    def finish(self, labels: Mapping[str, Any]) -> None:
        """Write the labels of the end, and replace the lines by the packed file."""
        self._line(dict(labels))
        self._file.close()
        files.write(self._packed, lzma.compress(self._path.read_bytes(), filters=_FILTERS))
        self._path.unlink()

    def abandon(self) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _line(self, content: object) -> None:
        self._file.write(orjson.dumps(content) + b"\n")
        self._file.flush()


def run_name(program: str, number: int, threads: int) -> str:
    """The name of a run and of its file."""
    return f"{program}-{number}" if threads == 1 else f"{program}-{threads}cpu-{number}"


def program_of(name: str) -> str:
    """The program of a run's name.

    >>> program_of("sort-pipeline-0"), program_of("lammps-2cpu-1")
    ('sort-pipeline', 'lammps')
    """
    return re.sub(r"(-\d+cpu)?-\d+$", "", name)


def lines_of(path: Path) -> Path:
    """Where a run is while it is recorded."""
    return path.with_name(path.name.removesuffix(".xz"))


def is_being_recorded(path: Path) -> bool:
    """Whether a living process records this run."""
    try:
        with lines_of(path).open("ab" if lines_of(path).exists() else "rb") as file:
            return not _lock(file)
    except FileNotFoundError:
        return False


def _lock(file: BinaryIO) -> bool:
    """Lock a file until it is closed; False if another process has."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def read_raw_run(path: Path) -> RawRun:
    """A complete run; a file that is damaged, unfinished or too large is refused."""
    try:
        unpacker = lzma.LZMADecompressor(memlimit=_MOST_MEMORY)
        text = unpacker.decompress(read_regular(path, _MOST_BYTES), max_length=_MOST_BYTES)
    except (OSError, lzma.LZMAError) as error:
        raise RecordingError(path, f"cannot be read: {error}") from error
    if not unpacker.eof:
        raise RecordingError(path, f"is cut off, or holds more than {_MOST_BYTES >> 20} MB")
    return parse_raw_run(text, path)


def parse_raw_run(text: bytes, where: object = "raw run") -> RawRun:
    """The lines of a run, as text."""
    labels: dict[str, Any] = {}
    names: list[str] = []
    now: dict[int, int] = {}
    times: list[float] = []
    samples: list[dict[int, int]] = []
    looks: list[RecordedLook] = []
    complete, left = False, _MOST_VALUES
    for number, line in enumerate(text.splitlines(), 1):
        try:
            content = orjson.loads(line)
            if isinstance(content, dict):
                labels |= content
                complete = number > 1
            elif content[0] == "+":
                names += map(str, content[1:])
            elif content[0] == MARK:
                looks.append(parse_line(content))
            elif content[0] == "-":
                for index in content[1:]:
                    del now[index]
            else:
                for index, change in zip(content[1::2], content[2::2], strict=True):
                    if type(index) is not int or not 0 <= index < len(names):
                        raise ValueError(f"there is no name {str(index)[:20]}")
                    now[index] = now.get(index, 0) + change
                left -= len(names)
                if left < 0:
                    raise ValueError(f"more than {_MOST_VALUES:,} values")
                times.append(content[0] / 1000)
                samples.append(dict(now))
        except (ValueError, KeyError, IndexError, TypeError, InputError) as error:
            raise RecordingError(where, f"not a line of a raw run: {error}", number) from error
    if not complete:
        raise RecordingError(where, "the run is not complete: the labels of its end are missing")
    values = np.full((len(names), len(samples)), np.nan)
    for k, sample in enumerate(samples):
        values[list(sample), k] = list(sample.values())
    return RawRun(labels, np.array(times), dict(zip(names, values, strict=True)), tuple(looks))
