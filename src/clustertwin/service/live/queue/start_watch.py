"""Forecasts beside the service: every few minutes `twin sched start` in a process of its own -> a published board.

The process has the lowest priority and a budget: it is ended when the budget is used up. The loop never waits for it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from clustertwin.core.errors import SourceError
from clustertwin.core.job_health import KnownHealth
from clustertwin.service.live.queue.queue_settings import QueueSettings
from clustertwin.service.live.queue.start_board import StartBoard, StartJudge, waiting_jobs

#: The longest answer that is read: about 100,000 waiting jobs.
MOST_BYTES = 1 << 26

#: Jobs that hang, as arguments of a command.
MOST_HANGS = 1000

#: Until a forecast has succeeded: the first one on a machine compiles the simulator, at the lowest priority.
FIRST_BUDGET_S = 900.0

#: Arguments of `twin` and a budget in seconds -> standard output. Raises `SourceError` if there is no answer.
RunTwin = Callable[[Sequence[str], float], str]


def run_twin(arguments: Sequence[str], budget_s: float) -> str:
    """Run `twin` at the lowest priority, and end it with all its children when the budget is used up."""
    command = ["nice", "-n", "19", sys.executable, "-m", "clustertwin", *arguments]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "500"}
    try:
        started = subprocess.Popen(command, start_new_session=True, env=environment, **pipes)  # type: ignore[call-overload]
    except OSError as error:  # no memory, or no descriptor
        raise SourceError(f"no process can be started: {error.strerror}") from error
    with started as process:
        try:
            output, errors = process.communicate(timeout=budget_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise SourceError(f"it took longer than its budget of {budget_s:.0f} s") from None
    if process.returncode:
        lines = [line for line in errors.decode(errors="replace").splitlines() if line.strip()]
        reason = lines[-1].strip().removeprefix("twin: ") if lines else ""
        raise SourceError(reason[:300] or f"exit code {process.returncode}")
    if len(output) > MOST_BYTES:
        raise SourceError(f"the answer is longer than {MOST_BYTES:,} bytes")
    return str(output.decode(errors="replace"))


class StartWatch:
    """Makes forecasts and publishes them. A forecast that fails leaves the last one, with its age and the reason."""

    def __init__(
        self,
        settings: QueueSettings,
        publish: Callable[[StartBoard], None],
        run: RunTwin = run_twin,
        health: Callable[[], KnownHealth] = dict,
    ) -> None:
        self.settings, self.board = settings, StartBoard()
        self._publish, self._run, self._judge, self._health = publish, run, StartJudge(), health

    def turn(self, clock: Callable[[], float] = time.monotonic) -> None:
        begin_s = clock()
        try:
            budget_s = self.settings.budget_s if self.board.asked_s else max(self.settings.budget_s, FIRST_BUDGET_S)
            document = parse_document(self._run([*self.settings.command(), *self._hangs()], budget_s))
            record, waiting = self._judge.look(document), self._judge.widened(waiting_jobs(document))
            board = StartBoard(
                float(document["asked_s"]), waiting, int(document["held"]), tuple(document["not_used"]), "",
                clock() - begin_s, record,
            )  # fmt: skip
        except SourceError as error:
            board = replace(self.board, problem=f"no forecast of starts: {error}")
        except (KeyError, TypeError, ValueError) as error:
            board = replace(self.board, problem=f"no forecast of starts: the answer cannot be read ({error!r:.100})")
        self.board = board
        self._publish(board)

    def _hangs(self) -> list[str]:
        """The running jobs that hang, as options. Without a past all jobs run to their limits already."""
        if not self.settings.past:
            return []
        known = list(self._health().values())[:MOST_HANGS]
        return [word for each in known if each.hangs for word in ("--hangs", f"{each.job}={each.sure:.3f}")]


def parse_document(text: str) -> dict[str, Any]:
    document = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    return document
