"""Learn every night beside the service: a time of day and a clock -> `twin learn run` for the day before, once.

The night is a process of its own, so that training takes neither the loop's memory nor its interpreter. Its words go to
home/nights.log, and so does the end of a night that a timer or a person began. The age of that file says when a night
was last begun: one that was missed is caught up with.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, tzinfo
from datetime import time as Hour
from pathlib import Path
from typing import TextIO

from clustertwin.core.errors import TwinError
from clustertwin.telemetry.learning.night.calendar_day import Day, yesterday

LOG = "nights.log"
_LOOK_S = 20.0


def due_s(now_s: float, hour: Hour, zone: tzinfo | None = None) -> float:
    """The last time at which the wall clock showed this hour; where clocks change it is one instant too."""
    today = datetime.fromtimestamp(now_s, zone).date()
    instants = [datetime.combine(today - timedelta(days=n), hour, zone).timestamp() for n in (0, 1)]
    return next(at_s for at_s in instants if at_s <= now_s)


class Nightly:
    """Calls `run` when the clock has passed the hour since it was last looked at; of many nights, for the last."""

    def __init__(self, hour: Hour, run: Callable[[Day], None], since_s: float, zone: tzinfo | None = None) -> None:
        self.hour, self.run, self.zone = hour, run, zone
        self._seen_s = since_s
        self._done: set[str] = set()  # a clock that is set back passes the same hour again

    def look(self, now_s: float) -> None:
        at_s = due_s(now_s, self.hour, self.zone)
        passed, self._seen_s = at_s > self._seen_s, now_s
        day = yesterday(at_s, self.zone)
        if passed and day.name not in self._done:
            self._done.add(day.name)
            self.run(day)


def last_begun_s(home: Path, now_s: float) -> float:
    """When a night was last begun here; a home that has none yet has nothing to catch up with."""
    log = home / LOG
    try:
        return min(log.stat().st_mtime, now_s)
    except FileNotFoundError:
        with suppress(OSError):  # a full disk is no reason not to watch
            log.touch(0o600)
        return now_s


def learn(home: Path, flags: Sequence[str], stop: threading.Event) -> Callable[[Day], None]:
    """What runs a night: `twin learn run`, with these flags besides."""

    def run(day: Day) -> None:
        words = ["learn", "run", "--home", str(home), "--day", day.name, *flags]
        execute([sys.executable, "-m", "clustertwin", *words], home / LOG, stop)

    return run


def execute(command: Sequence[str], log: Path, stop: threading.Event) -> int | None:
    """Run a command behind everything else, its words and its exit code in the log; None where it could not be.

    75 means that another retrainer is at work. A service that stops takes the night with it; it can be gone on with.
    """
    try:
        with log.open("a") as out:
            _begin(out, command[1:])
            # A session of its own: Ctrl-C is for the service, and the night's workers are ended with it.
            process = subprocess.Popen(
                ["nice", "-n", "19", *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            while process.poll() is None:
                if stop.wait(0.5):
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGTERM)
                    process.wait()
            print(f"exit code {process.returncode}", file=out)
            return process.returncode
    except OSError:
        return None  # a full disk would have failed the night too; tomorrow is another one


@contextmanager
def noted(home: Path, day: Day) -> Iterator[None]:
    """Put a night into the log that the service did not start, and how it ended: its pages tell of that one too."""
    log = home / LOG
    if _is_standard_output(log):  # the service wrote the first line, hears every word, and will write the last
        yield
        return
    _append(log, lambda out: _begin(out, ["learn", "run", "--home", str(home), "--day", day.name]))
    said, code = "", 1
    try:
        yield
        code = 0
    except TwinError as error:
        said, code = f"twin: {error}", error.exit_code
        raise
    except KeyboardInterrupt:
        code = -signal.SIGINT
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise
    finally:
        _append(log, lambda out: print(*([said] if said else []), f"exit code {code}", sep="\n", file=out))


def tell_registry(home: Path) -> threading.Thread | None:
    """Let MLflow know who serves now, where this home has one; None where it has none.

    In a process of its own, behind the answer: with MLflow come seconds and a hundred megabytes. What it does not take,
    because it is down, the next night tells it.
    """
    if not (os.environ.get("MLFLOW_TRACKING_URI") or (home / "mlflow").exists()):
        return None
    command = ["nice", "-n", "5", sys.executable, "-m", "clustertwin", "model", "sync", "--home", str(home)]
    silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    thread = threading.Thread(target=subprocess.call, args=(command,), kwargs=silent, name="registry", daemon=True)
    thread.start()
    return thread


def watch(
    nightly: Nightly, stop: threading.Event, clock: Callable[[], float] = time.time, look_s: float = _LOOK_S
) -> None:
    """Look until told to stop; a thread's work, beside the loop."""
    while not stop.wait(look_s):
        nightly.look(clock())


def _begin(out: TextIO, words: Sequence[str]) -> None:
    print(f"{datetime.now().isoformat(' ', 'seconds')} {' '.join(words)}", file=out, flush=True)


def _append(log: Path, write: Callable[[TextIO], None]) -> None:
    with suppress(OSError), log.open("a") as out:  # no home yet, a full disk: no reason not to learn
        write(out)


def _is_standard_output(log: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(1), log.stat())
    except OSError:
        return False
