"""Run nightly learning beside the service: a time of day -> `twin learn run` for the day before, once a day.

The night is a separate process, so that training uses neither the memory nor the interpreter of the loop. Its output
goes to HOME/nights.log. A night that a timer or a person started adds its start and its end there too. The modification
time of the file tells when the last night was started, so a missed night is run after a restart. A night that was
interrupted with the service is resumed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime, timedelta, tzinfo
from datetime import time as Hour
from pathlib import Path
from typing import TextIO

from clustertwin.core import files
from clustertwin.core.errors import OutputError, TwinError
from clustertwin.core.foreign_files import open_regular
from clustertwin.service.live.beside.side_work import Fence, repeat
from clustertwin.telemetry.learning.night.calendar_day import Day, yesterday

LOG = "nights.log"
#: The lines of the log that say when a night began and how it ended.
BEGUN = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d .*--day (\d{4}-\d\d-\d\d)")
ENDED = re.compile(r"^exit code (-?\d{1,5})$")
#: The end of the log that has all beginnings of the last night.
_NIGHTS_BYTES = 1 << 20
#: A night that was interrupted is begun at most this often: it may be the reason why the service ends.
MOST_BEGINNINGS = 3
_CHECK_S = 20.0


def due_s(now_s: float, hour: Hour, zone: tzinfo | None = None) -> float:
    """The last time at which the local clock showed this hour; also defined when daylight saving time changes."""
    today = datetime.fromtimestamp(now_s, zone).date()
    instants = [datetime.combine(today - timedelta(days=n), hour, zone).timestamp() for n in (0, 1)]
    return next(at_s for at_s in instants if at_s <= now_s)


class NightlySchedule:
    """Calls `run` when the hour has passed since the last check. Of several missed nights, only the last is run."""

    def __init__(self, hour: Hour, run: Callable[[Day], None], since_s: float, zone: tzinfo | None = None) -> None:
        self.hour, self.run, self.zone = hour, run, zone
        self._checked_s = since_s
        self._done: set[str] = set()  # a clock that is set back passes the same hour twice

    def check(self, now_s: float) -> None:
        at_s = due_s(now_s, self.hour, self.zone)
        day = yesterday(at_s, self.zone)
        if at_s > self._checked_s and day.name not in self._done:
            self.run(day)  # if this raises, the next check tries again
            self._done.add(day.name)
        self._checked_s = now_s


def last_begun_s(home: Path, now_s: float) -> float:
    """When the last night was started; 0 if it is to be resumed. A new home has missed no night: `now_s`."""
    log = home / LOG
    try:
        begun_s = min(log.stat().st_mtime, now_s)
    except FileNotFoundError:
        with suppress(OSError):  # the service starts even if the disk is full
            log.touch(0o600)
        return now_s
    with suppress(OSError):
        if is_interrupted(log_tail(log, _NIGHTS_BYTES)):
            return 0.0
    return begun_s


def log_tail(log: Path, most_bytes: int) -> str:
    """The end of the log."""
    with open(open_regular(log), "rb") as file:
        file.seek(max(0, file.seek(0, 2) - most_bytes))
        return file.read().decode(errors="replace")


def is_interrupted(text: str) -> bool:
    """Whether the last night of this log was ended together with the service, by a signal or a crash."""
    days: list[str] = []  # of the nights that were begun, if nothing else ended since
    ended = True
    for line in text.splitlines():
        if begun := BEGUN.match(line):
            days, ended = [*days, begun[1]], False
        elif code := ENDED.match(line):
            ended = int(code[1]) != -signal.SIGTERM
            days = [] if ended else days
    return not ended and bool(days) and days[-MOST_BEGINNINGS:] != [days[-1]] * MOST_BEGINNINGS


def learn(
    home: Path, flags: Sequence[str], stop: threading.Event, log_bytes: int | None = None
) -> Callable[[Day], None]:
    """A function that runs `twin learn run` for a day, with these additional flags. The log keeps its last bytes."""

    def run(day: Day) -> None:
        arguments = ["learn", "run", "--home", str(home), "--day", day.name, *flags]
        shorten(home / LOG, log_bytes)
        if execute([sys.executable, "-m", "clustertwin", *arguments], home / LOG, stop) is None:
            raise OutputError(f"the night of {day.name} cannot be started: is the disk full?")

    return run


def shorten(log: Path, most_bytes: int | None) -> None:
    """Keep the last half of a log that is larger than the limit, from the beginning of a line on."""
    with suppress(OSError, TwinError):  # the night runs even if the disk is full
        if most_bytes is None or log.stat().st_size <= most_bytes:
            return
        with log.open("rb") as file:
            file.seek(-(most_bytes // 2), os.SEEK_END)
            files.write(log, file.read().partition(b"\n")[2])


def execute(command: Sequence[str], log: Path, stop: threading.Event) -> int | None:
    """Run a command at low priority, with its output and its exit code in the log; None if it could not be started.

    Exit code 75 means that another night is running. When the service stops, the night is stopped too; the next run
    resumes it.
    """
    try:
        with log.open("a") as out:
            _begin(out, command[1:])
            # A new session: Ctrl-C reaches only the service, which then stops the night and its workers.
            process = subprocess.Popen(
                ["nice", "-n", "19", *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError:
        return None  # the disk is full: the night would fail too
    while process.poll() is None:
        if stop.wait(0.5):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()
    _append(log, lambda out: print(f"exit code {process.returncode}", file=out))
    return process.returncode


@contextmanager
def noted(home: Path, day: Day) -> Iterator[None]:
    """Log the start and the end of a night that the service did not start, so that its pages can show a failure."""
    log = home / LOG
    if _is_standard_output(log):  # the service started this night and writes the log itself
        yield
        return
    _append(log, lambda out: _begin(out, ["learn", "run", "--home", str(home), "--day", day.name]))
    message, code = "", 1
    try:
        yield
        code = 0
    except TwinError as error:
        message, code = f"twin: {error}", error.exit_code
        raise
    except KeyboardInterrupt:
        code = -signal.SIGINT
        raise
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        raise
    finally:
        _append(log, lambda out: print(*([message] if message else []), f"exit code {code}", sep="\n", file=out))


def tell_registry(home: Path) -> threading.Thread | None:
    """Tell MLflow which model is in service, if this home uses MLflow; else return None.

    It runs in a separate process, after the answer is sent: importing MLflow takes seconds and a hundred megabytes. If
    MLflow is down, the next night sends the update.
    """
    if not (os.environ.get("MLFLOW_TRACKING_URI") or (home / "mlflow").exists()):
        return None
    command = ["nice", "-n", "5", sys.executable, "-m", "clustertwin", "model", "sync", "--home", str(home)]
    silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    thread = threading.Thread(target=subprocess.call, args=(command,), kwargs=silent, name="registry", daemon=True)
    thread.start()
    return thread


def watch(
    nightly: NightlySchedule,
    stop: threading.Event,
    clock: Callable[[], float] = time.time,
    check_s: float = _CHECK_S,
    fence: Fence = nullcontext,
) -> None:
    """Check the schedule until `stop` is set; the work of a thread beside the loop."""
    repeat(lambda: nightly.check(clock()), stop, check_s, fence)


def _begin(out: TextIO, command: Sequence[str]) -> None:
    print(f"{datetime.now().isoformat(' ', 'seconds')} {' '.join(command)}", file=out, flush=True)


def _append(log: Path, write: Callable[[TextIO], None]) -> None:
    with suppress(OSError), log.open("a") as out:  # learning continues without a log
        write(out)


def _is_standard_output(log: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(1), log.stat())
    except OSError:
        return False
