"""Current problems, one sentence each: of the loop, of the work beside it, nightly learning and joined clusters."""

from __future__ import annotations

import time
from pathlib import Path

from clustertwin.core.errors import TwinError
from clustertwin.service.live.beside.night_runner import BEGUN, ENDED, LOG, log_tail
from clustertwin.service.live.snapshot import SET_BACK_S, ServiceState
from clustertwin.telemetry.learning.champions.fencing_lock import Busy
from clustertwin.telemetry.learning.champions.learning_state import read_state

MOST = 20  # enough to show, even if a thousand exporters are down
#: Evidence and actions stand still if no turn began for this long. Slurm and the helpers answer within seconds.
HAND_STANDS_S = 300.0
_TAIL_BYTES = 8192
#: Exit codes that are not failures: another night was running, or the night was stopped together with the service.
_NO_FAILURE = (0, Busy.exit_code, -2, -15)


def problems(state: ServiceState) -> tuple[str, ...]:
    """The first problems, and the number of the others."""
    sentences = all_problems(state)
    if len(sentences) <= MOST:
        return sentences
    return (*sentences[:MOST], f"and {len(sentences) - MOST} more")


def all_problems(state: ServiceState) -> tuple[str, ...]:
    starts = (state.starts.problem,) if state.starts and state.starts.problem else ()
    beside = tuple(state.side_problems.copy().values())
    own = state.snapshot.problems
    return (*nights(state.home), *_hand(state), *beside, *own, *starts, *_silent_clusters(state))


def _hand(state: ServiceState) -> tuple[str, ...]:
    """Why evidence and actions are missing. A thread that stands still cannot say so itself."""
    age_s = state.hand_age_s()
    stands = f"nothing has been looked at or done for {age_s:.0f} s" if age_s > HAND_STANDS_S else ""
    return tuple(f"evidence and actions: {sentence}" for sentence in (stands, state.hand_problem) if sentence)


def _silent_clusters(state: ServiceState) -> tuple[str, ...]:
    """How many joined clusters are not watched. Their names are on the page that only their readers see."""
    board = state.members
    silent = len(list(board.silent(time.monotonic()))) if board else 0
    return (f"{silent} of {len(board.members)} joined clusters are not watched",) if board and silent else ()


def nights(home: Path) -> tuple[str, ...]:
    """Why nothing is learned, and what to do about it. Frozen learning is not a problem: a person asked for it."""
    try:
        learning = read_state(home)
    except TwinError as error:
        return (f"nothing is learned: {error}",)
    if learning.halted:
        return (f"learning is halted: {learning.halted.reason}",)
    failed = _failed(home, learning.ended_s)
    return (failed,) if failed else ()


def _failed(home: Path, ended_s: float) -> str:
    """The last night, if it failed and no later night has ended."""
    log = home / LOG
    try:
        # An end in the future is from before the clock was set back, and would hide all failures until then.
        if log.stat().st_mtime <= ended_s <= time.time() + SET_BACK_S:
            return ""
        return parse_log(log_tail(log, _TAIL_BYTES))
    except OSError:
        return ""


def parse_log(text: str) -> str:
    """The end of nights.log -> the failure of the last night; empty if it did not fail."""
    day, code, last = "", 0, ""
    for line in text.splitlines():
        if begun := BEGUN.match(line):
            day, code, last = begun[1], 0, ""
        elif ended := ENDED.match(line):
            code = int(ended[1])
        elif line.strip():
            last = line.strip()
    if code in _NO_FAILURE:
        return ""
    reason = last.removeprefix("twin: ").rstrip(".")[:300] or f"exit code {code}"
    return (
        f"learning failed in the night of {day or 'an earlier day'}: {reason}. The champion stays in service. To "
        f"resume, run `twin learn run{f' --day {day}' if day else ''}`; the output of the night is in {LOG}"
    )
