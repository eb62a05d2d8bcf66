"""What is known about running jobs, kept over a restart: the past of the questions <-> HOME/running-jobs.safetensors.

Without it a service that restarts during a fault would take the fault as usual. The file is bounded, and written every
few minutes and at the end. It helps for an hour: one that is older, damaged or of another release is not used, and the
past of jobs is then taken from the seconds at hand.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core import files
from clustertwin.core.errors import InputError, TwinError
from clustertwin.core.extras import require
from clustertwin.core.foreign_files import parse_json, read_regular
from clustertwin.telemetry.detection.forecast.memory_watch import PIECES, KeptMemory, MemoryWatch

if TYPE_CHECKING:  # importing them compiles
    from clustertwin.telemetry.detection.questions.question_memory import QuestionMemory, RunningJobs

FILE, VERSION = "running-jobs.safetensors", 1
MOST_BYTES = 64 << 20
#: Parts of jobs, and rows of memory, in the file: about 50 MB.
MOST_PARTS = 4096
#: Between two writes.
SAVE_S = 300.0
#: A service that was away for longer begins again.
LONGEST_AWAY_S = 3600
_LATEST_S, _MOST_COUNT = 10**11, 1 << 30
_LARGEST = 6e4  # a number in half precision
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class StoredJobs:
    """The content of the file."""

    end_s: int  # of the last moment
    jobs: RunningJobs
    memory: KeptMemory


def jobs_document(memory: QuestionMemory, watch: MemoryWatch, end_s: int) -> bytes:
    """The file: the jobs with the longest past, within the bounds."""
    content = _document(memory, watch, end_s, MOST_PARTS)
    # Names are as long as sources like, and a file over the limit would not be read.
    return content if len(content) <= MOST_BYTES else _document(memory, watch, end_s, MOST_PARTS // 4)


def _document(memory: QuestionMemory, watch: MemoryWatch, end_s: int, most: int) -> bytes:
    from clustertwin.telemetry.detection.questions.job_parts import SIGNALS

    running, kept = memory.running(most), watch.kept(most)
    names = {
        "version": VERSION,
        "end_s": end_s,
        "signals": SIGNALS,
        "places": running.places,
        "labels": [[label.program, label.user] for label in running.labels],
        "memory_places": kept.places,
        "memory_piece": kept.piece,
    }
    arrays = {name: np.ascontiguousarray(array) for name, array in running.past.items()}
    arrays["blocks"] = arrays["blocks"].clip(-_LARGEST, _LARGEST).astype(np.float16)  # as moments on disk
    arrays["memory"] = np.ascontiguousarray(kept.pieces)
    arrays["names"] = np.frombuffer(json.dumps(names).encode(), np.uint8)
    content: bytes = require("safetensors.numpy", "models").save(arrays)
    return content


def read_jobs(path: Path) -> StoredJobs | None:
    """The content of the file; None without one. `InputError` if it cannot be used."""
    try:
        arrays = require("safetensors.numpy", "models").load(read_regular(path, MOST_BYTES))
        return _checked(parse_json(arrays.pop("names").tobytes()), arrays)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(path, f"cannot be read: {error.strerror or error}") from error
    except TwinError:
        raise
    except Exception as error:  # safetensors raises its own class, which is not a ValueError
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        raise InputError(path, f"does not have the past of jobs: {reason}") from error


def _checked(names: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> StoredJobs:
    """ValueError, TypeError, KeyError or IndexError unless every number is one that this release could have written."""
    from clustertwin.telemetry.detection.questions.job_parts import SIGNALS
    from clustertwin.telemetry.detection.questions.question_memory import JobLabel, RunningJobs
    from clustertwin.telemetry.detection.questions.question_settings import QuestionSettings

    if (names["version"], tuple(names["signals"])) != (VERSION, SIGNALS):
        raise ValueError("another release wrote it")
    places, memory_places = _places(names["places"]), _places(names["memory_places"])
    labels = tuple(JobLabel(_text(program), _text(user)) for program, user in names["labels"])
    end_s, piece = names["end_s"], names["memory_piece"]
    if type(end_s) is not int or type(piece) is not int or len(labels) != len(places) or end_s > _LATEST_S:
        raise ValueError("its names do not fit together")
    n, most = len(places), QuestionSettings().most_blocks
    _check(arrays["filled"], (n,), np.int64, 1, most)
    total = int(arrays["filled"].sum())
    _check(arrays["blocks"], (total, len(SIGNALS)), np.float16, -_LARGEST, _LARGEST)
    _check(arrays["flagged"], (total, len(SIGNALS)), np.bool_)
    _check(arrays["first"], (n,), np.int64, 0, arrays["filled"])
    _check(arrays["end_s"], (n,), np.int64, 0, end_s)
    _check(arrays["begun_s"], (n,), np.int64, 0, end_s)
    _check(arrays["episodes"], (n, len(SIGNALS)), np.uint8)
    _check(arrays["threads"], (n,), np.int64, 0, _MOST_COUNT)
    _check(arrays["rest"], (n, 3), np.int64, 0, _MOST_COUNT)
    _check(arrays["on_one_thread"], (n,), np.int8, -1, 1)
    pieces = arrays.pop("memory")
    _check(pieces, (len(memory_places), min(pieces.shape[1], PIECES)), np.float32, -_LARGEST, _LARGEST)
    arrays["blocks"] = arrays["blocks"].astype(np.float32)
    return StoredJobs(end_s, RunningJobs(places, labels, arrays), KeptMemory(memory_places, pieces, piece))


def _places(rows: list[Any]) -> tuple[tuple[str, str], ...]:
    places = tuple((_text(one), _text(other)) for one, other in rows)
    if len(places) > MOST_PARTS or len(set(places)) < len(places):
        raise ValueError(f"more than {MOST_PARTS} parts of jobs, or one of them twice")
    return places


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:20]!r} is not a name")
    return value


def _check(array: NDArray[Any], shape: tuple[int, ...], dtype: Any, least: Any = None, most: Any = None) -> None:
    """Raise ValueError if an array is not what it should be. Numbers that are not known are allowed."""
    # The shape first: arrays of other shapes could be compared to one of billions of rows.
    if (
        array.shape != shape
        or array.dtype != dtype
        or (least is not None and bool(((array < least) | (array > most)).any()))
    ):
        raise ValueError(f"an array of {array.shape} is not the {shape} that it should be, or has other numbers")


class RunningJobsFile:
    """The file of a home. `problem` is why it is not read or not written, in one sentence."""

    def __init__(self, home: Path, watch: MemoryWatch, clock: Callable[[], float] = time.monotonic) -> None:
        self.problem = ""
        self._path, self._watch, self._clock = home / FILE, watch, clock
        self._saved_s = clock()
        self._was_read = False

    def go_on(self, memory: QuestionMemory, now_s: int) -> None:
        """Let the first memory after a start, and the watch, go on with the jobs of the file."""
        if self._was_read:
            return
        self._was_read = True
        try:
            stored = read_jobs(self._path)
        except TwinError as error:
            self.problem = f"what was usual for running jobs is taken from the last minutes: {error}"
            return
        if stored and 0 <= now_s - stored.end_s <= LONGEST_AWAY_S:
            memory.go_on(stored.jobs, now_s)
            self._watch.go_on(stored.memory)

    def save(self, memory: QuestionMemory | None, end_s: int, now: bool = False) -> None:
        """Write what is known at this second, at most every `SAVE_S` or now."""
        at_s = self._clock()
        if memory is None or (not now and at_s - self._saved_s < SAVE_S):
            return
        self._saved_s = at_s
        try:
            with files.replacing(self._path, private=True) as out:
                out.write(jobs_document(memory, self._watch, end_s))
            self.problem = ""
        except TwinError as error:
            self.problem = f"what is usual for running jobs is not stored: {error}"
