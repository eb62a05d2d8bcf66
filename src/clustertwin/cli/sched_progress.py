"""A training run as it is watched: rounds -> a progress bar with the live score, on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from clustertwin.cli.output import err
from clustertwin.workload.rl.train import Round, TrainSettings


@contextmanager
def training_bar(settings: TrainSettings) -> Iterator[Callable[[Round], None]]:
    """Gives what to call after each round."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("slowdown against SJF {task.fields[ratio]}, best judged {task.fields[best]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err) as progress:
        bars = {s: progress.add_task(s, total=n, ratio="–", best="–") for s, n in settings.stages.items() if n}
        best = float("inf")

        def report(entry: Round) -> None:
            nonlocal best
            best = min(best, entry.judged_ratio or best)
            progress.update(bars[entry.stage], completed=entry.number, ratio=f"{entry.ratio:.3f}", best=f"{best:.3f}")

        yield report
