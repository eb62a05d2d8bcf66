"""Show the progress of a training on standard error: rounds -> a progress bar with the current slowdown, or lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from clustertwin.cli.output import err
from clustertwin.cli.step_progress import step_progress
from clustertwin.workload.rl.policy_training import Report, TrainingRound, TrainSettings


@contextmanager
def training_bar(settings: TrainSettings) -> Iterator[Report]:
    """A progress bar for each stage; call the yielded function after each round. Outside a terminal, a line each."""
    if not err.is_terminal:
        with step_progress() as show:
            yield lambda entry: show(
                f"{entry.stage} {entry.number}, slowdown relative to SJF {entry.ratio:.3f}",
                entry.number,
                settings.stages[entry.stage],
            )
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("slowdown relative to SJF {task.fields[ratio]}, best in validation {task.fields[best]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err) as progress:
        bars = {
            stage: progress.add_task(stage, total=rounds, ratio="–", best="–")
            for stage, rounds in settings.stages.items()
            if rounds
        }
        best = float("inf")

        def report(entry: TrainingRound) -> None:
            nonlocal best
            best = min(best, entry.judged_ratio or best)
            progress.update(bars[entry.stage], completed=entry.number, ratio=f"{entry.ratio:.3f}", best=f"{best:.3f}")

        yield report
