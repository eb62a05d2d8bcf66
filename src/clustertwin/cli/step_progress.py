"""Show the steps of a long command on standard error: a bar on a terminal, lines in a file or a pipe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from rich.progress import Progress, SpinnerColumn

from clustertwin.cli.output import err
from clustertwin.core.formatting import duration

#: step, how much of it is done, total; a total of 0 is unknown
ShowStep = Callable[[str, int, int], None]

HEARTBEAT_S = 60.0


@contextmanager
def step_progress() -> Iterator[ShowStep]:
    """Call the yielded function with (step, done, total)."""
    if not err.is_terminal:
        lines = StepLines(lambda line: err.print(line, highlight=False, soft_wrap=True))
        with lines.heartbeat(HEARTBEAT_S):
            yield lines.show
        return
    with Progress(SpinnerColumn(), *Progress.get_default_columns(), console=err, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda step, done, total: bar.update(task, description=step, completed=done, total=total or None)


class StepLines:
    """One line for each new step. The heartbeat repeats the line of a step that takes long."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock, self._begin_s = write, clock, clock()
        self._step, self._line_s, self._count = "starting", clock(), ""

    def show(self, step: str, done: int, total: int) -> None:
        self._count = f", {done} of {total}" if total else ""
        if step != self._step:
            self._step = step
            self._print()

    def beat(self, every_s: float) -> None:
        """Repeat the step if the last line is older than `every_s`."""
        if self._clock() - self._line_s >= every_s:
            self._print()

    @contextmanager
    def heartbeat(self, every_s: float) -> Iterator[None]:
        """Call `beat` in a thread until the block ends."""
        stopped = Event()

        def repeat() -> None:
            while not stopped.wait(every_s / 4):
                self.beat(every_s)

        thread = Thread(target=repeat, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()

    def _print(self) -> None:
        self._line_s = self._clock()
        self._write(f"{duration(self._line_s - self._begin_s)}: {self._step}{self._count}")
