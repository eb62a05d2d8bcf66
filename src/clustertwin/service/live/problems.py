"""What is wrong now: a state -> the loop's problems, and a night of learning that halted or failed, a sentence each."""

from __future__ import annotations

import re
from pathlib import Path

from clustertwin.core.errors import TwinError
from clustertwin.service.live.night_runner import LOG
from clustertwin.service.live.snapshot import ServiceState
from clustertwin.telemetry.learning.champions.fencing_lock import Busy
from clustertwin.telemetry.learning.champions.learning_state import read_state

MOST = 20  # of a thousand exporters that are down, the first tell enough
_TAIL_BYTES = 8192
_BEGUN = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d .*--day (\d{4}-\d\d-\d\d)")
_ENDED = re.compile(r"^exit code (-?\d+)$")
#: Not a failure: another retrainer was at work, or the service was stopped and the night with it.
_FINE = (0, Busy.exit_code, -2, -15)


def problems(state: ServiceState) -> tuple[str, ...]:
    """One sentence each; of very many the first, and how many there are besides."""
    found = (*nights(state.home), *state.snapshot.problems)
    return found if len(found) <= MOST else (*found[:MOST], f"and {len(found) - MOST} more")


def nights(home: Path) -> tuple[str, ...]:
    """Why nothing is learnt, and what to do about it. A freeze is a person's wish, and no problem."""
    try:
        learning = read_state(home)
    except TwinError as error:
        return (f"nothing is learnt: {error}",)
    if learning.halted:
        return (f"learning is halted: {learning.halted.reason}",)
    failed = _failed(home, learning.ended_s)
    return (failed,) if failed else ()


def _failed(home: Path, ended_s: float) -> str:
    """The last night, where it failed and none has ended since."""
    log = home / LOG
    try:
        if log.stat().st_mtime <= ended_s:
            return ""
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            return parse_log(file.read().decode(errors="replace"))
    except OSError:
        return ""


def parse_log(text: str) -> str:
    """The end of a log of nights -> what failed last; empty where the last night did not."""
    day, code, last = "", 0, ""
    for line in text.splitlines():
        if begun := _BEGUN.match(line):
            day, code, last = begun[1], 0, ""
        elif ended := _ENDED.match(line):
            code = int(ended[1])
        elif line.strip():
            last = line.strip()
    if code in _FINE:
        return ""
    reason = last.removeprefix("twin: ")[:300] or f"exit code {code}"
    return (
        f"the night of {day or 'an earlier day'} failed: {reason}; the champion stays. `twin learn run"
        f"{f' --day {day}' if day else ''}` goes on with it, and {LOG} has all its words"
    )
