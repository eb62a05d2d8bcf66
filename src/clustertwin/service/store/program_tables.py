"""What is usual for programs and users, kept over restarts: the tables of the questions <-> HOME/programs.json.

The file is bounded: the programs and users that were learnt from last, and the newest runs of each. It is written a few
minutes after a run was learnt from, and at the end. A file that cannot be used is named, set aside and learnt again. A
file of a newer release stays as it is, and nothing is stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustertwin import __version__
from clustertwin.core import files
from clustertwin.core.errors import InputError, TwinError
from clustertwin.core.foreign_files import parse_json, read_regular
from clustertwin.service.store.home_format import ASIDE, HomeFormatError, refuse_newer

if TYPE_CHECKING:  # importing them compiles
    from clustertwin.telemetry.detection.questions.question_memory import QuestionMemory
    from clustertwin.telemetry.detection.questions.usual import ProgramUsual

FILE, VERSION = "programs.json", 1
MOST_BYTES = 32 << 20
#: Programs, and users, in the file.
MOST_NAMES = 1024
#: Runs of each in the file. In memory there are more; the file would grow to 50 MB.
MOST_STORED_RUNS = 8
LONGEST_NAME = 256
#: Between two writes, if something was learnt. A crash loses the runs that ended within this time.
SAVE_S = 300.0

Tables = dict[str, "ProgramUsual"]


def tables_document(programs: Mapping[str, ProgramUsual], users: Mapping[str, ProgramUsual]) -> bytes:
    """The file: the tables that were learnt from last, within the bounds."""
    import orjson

    from clustertwin.telemetry.detection.questions.usual import programs_to_json

    head = {"version": VERSION, "written_by": f"clustertwin {__version__}"}
    document, of_users = programs_to_json(_bounded(programs)), programs_to_json(_bounded(users))
    return orjson.dumps({**head, **document, "users": of_users["programs"]})


def _bounded(tables: Mapping[str, ProgramUsual]) -> Tables:
    from clustertwin.telemetry.detection.questions.usual import ProgramUsual

    newest = [(name, usual) for name, usual in tables.items() if _is_name(name)][-MOST_NAMES:]
    return {name: ProgramUsual(usual.runs[-MOST_STORED_RUNS:], usual.total) for name, usual in newest}


def _is_name(name: str) -> bool:
    """Whether a name can be stored. A source may give any text, also one that UTF-8 cannot hold."""
    return 0 < len(name) <= LONGEST_NAME and not any("\ud800" <= char <= "\udfff" for char in name)


def read_tables(path: Path) -> tuple[Tables, Tables]:
    """The tables of programs and of users; none without a file.

    `InputError` if it cannot be used, `HomeFormatError` if a newer release wrote it.
    """
    try:
        content = parse_json(read_regular(path, MOST_BYTES))
        version = content["version"]
        if type(version) is not int or version < 1:
            raise ValueError(f"{str(version)[:20]!r} is not a version")
    except FileNotFoundError:
        return {}, {}
    except OSError as error:
        raise InputError(path, f"cannot be read: {error.strerror or error}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(path, f"does not have the tables of programs: {_brief(error)}") from error
    refuse_newer(path, version, VERSION, str(content.get("written_by", "a newer release"))[:80])
    try:
        return _tables_of(content, "programs"), _tables_of(content, "users")
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise InputError(path, f"does not have the tables of programs: {_brief(error)}") from error


def _tables_of(content: dict[str, Any], part: str) -> Tables:
    from clustertwin.telemetry.detection.questions.usual import programs_from_json

    rows = content[part]
    if len(rows) > MOST_NAMES or not all(_is_name(name) for name in rows):
        raise ValueError(f"more than {MOST_NAMES} {part}, or a name of no or more than {LONGEST_NAME} characters")
    return programs_from_json({"signals": content["signals"], "programs": rows})


def _brief(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:120]


class ProgramTables:
    """The file of a home. `problem` is why tables are not read or not stored, in one sentence."""

    def __init__(
        self, home: Path, clock: Callable[[], float] = time.monotonic, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self.problem = ""
        self._home, self._path = home, home / FILE
        self._clock, self._wall_clock = clock, wall_clock
        self._may_write = True
        self._saved_s = clock()
        self._saved_runs = 0  # of the memory, when it was saved last

    def load(self) -> tuple[Tables, Tables]:
        """The tables of programs and users; none, and a problem, if the file cannot be used."""
        self.problem, self._saved_runs, self._may_write = "", 0, True
        try:
            return read_tables(self._path)
        except HomeFormatError as error:
            self._may_write = False
            self.problem = f"what is usual for programs is not read and not stored: {error}"
        except InputError as error:
            self.problem = f"what is usual for programs is learnt again: {error}; {self._set_aside()}"
        return {}, {}

    def save(self, memory: QuestionMemory | None, now: bool = False) -> None:
        """Write what was learnt since the last time, at most every `SAVE_S` or now."""
        if memory is None or not self._may_write or memory.learnt_runs == self._saved_runs:
            return
        at_s = self._clock()
        if not now and at_s - self._saved_s < SAVE_S:
            return
        self._saved_s, runs = at_s, memory.learnt_runs
        try:
            with files.replacing(self._path, private=True) as out:
                out.write(tables_document(memory.programs, memory.users))
        except TwinError as error:
            self.problem = f"what is usual for programs is not stored: {error}"
            return
        self._saved_runs, self.problem = runs, ""

    def _set_aside(self) -> str:
        """Move the file away as `twin doctor --repair` does: a person may want to look at it."""
        target = self._home / ASIDE / time.strftime("%Y%m%dT%H%M%S", time.gmtime(self._wall_clock())) / FILE
        try:
            files.move(self._path, target)
            return f"it was moved to {target}"
        except TwinError as error:
            self._may_write = False
            return f"nothing is stored: {error}"
