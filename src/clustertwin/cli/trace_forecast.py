"""`twin trace forecast`: intervals of the coming weeks of a site, learnt from its job log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from clustertwin.cli.log_argument import log_argument
from clustertwin.cli.options import MOST_SEED, options
from clustertwin.cli.output import Json, err, print_json, print_table
from clustertwin.cli.plot_file import check_plot, write_plot
from clustertwin.cli.step_progress import step_progress
from clustertwin.core.formatting import visible


@dataclass(frozen=True)
class TraceForecastOptions:
    real: Annotated[Path, log_argument("The log to learn from")]
    weeks: Annotated[int, typer.Option(min=1, help="Number of weeks after the last submission.")] = 26
    draws: Annotated[int, typer.Option(min=2, help="Number of synthetic continuations.")] = 20
    share: Annotated[float, typer.Option(help="Share of the draws that an interval holds.")] = 0.8
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_SEED, help="Random seed; the same seed gives the same forecast.")
    ] = 0
    procs: Annotated[int | None, typer.Option(min=1, help="Size of the machine in nodes (or cpus).")] = None
    plot: Annotated[Path | None, typer.Option(help="Also plot it: a .png, .svg, .pdf or .html file.")] = None
    lenient: Annotated[bool, typer.Option(help="Repair or drop faulty lines of the log.")] = False
    force: Annotated[bool, typer.Option(help="Overwrite an existing file.")] = False
    json: bool = Json


@options(TraceForecastOptions)
def forecast(options: TraceForecastOptions) -> None:
    """Forecast load, jobs, active users and waits of the coming weeks, with intervals."""
    from clustertwin.workload.fidelity.measures.concurrency import submits_are_starts
    from clustertwin.workload.fidelity.measures.offered_load import capacity
    from clustertwin.workload.formats import read
    from clustertwin.workload.studies.forecast_plot import draw_forecast, forecast_page
    from clustertwin.workload.studies.site_forecast import ForecastSettings
    from clustertwin.workload.studies.site_forecast import forecast as run

    if options.plot is not None:
        check_plot(options.plot, options.force)
    log = read(options.real, options.lenient)
    settings = ForecastSettings(options.weeks, options.draws, options.seed, options.share, options.procs)
    with step_progress() as show:
        show("learning the site", 0, 0)
        made = run(log, settings, done=lambda count: show("drawing coming weeks", count, options.draws))
    if submits_are_starts(log, capacity(log, options.procs)):
        err.print("The submit times of the log are start times: forecast waits mean nothing.", style="yellow",
                  soft_wrap=True)  # fmt: skip
    if options.plot is not None:
        title = visible(options.real.name)
        write_plot(options.plot, lambda: forecast_page(made, title), lambda: draw_forecast(made, title))
    if options.json:
        print_json({"log": str(options.real), **made.document()})
    else:
        _print_forecast(made)


def _print_forecast(made: Any) -> None:
    from clustertwin.workload.studies.site_forecast import MEASURES

    bounds = {name: made.interval(name) for name in MEASURES}
    nameless = any("names no users" in reason for reason in made.not_learnt)
    rows = []
    for week in range(made.settings.weeks):
        cells = ["{1:.3g} ({0:.3g} to {2:.3g})".format(*bounds[name][:, week]) for name in ("load", "users")]
        counts = ["{1:,.0f} ({0:,.0f} to {2:,.0f})".format(*bounds[name][:, week]) for name in ("jobs", "wait_s")]
        rows.append((week + 1, cells[0], counts[0], "" if nameless else cells[1], counts[1]))
    title = f"Simulated coming weeks: median and {made.settings.share:.0%} interval of {made.settings.draws} draws"
    print_table(title, ["week", "load", "jobs", "active users", "EASY wait, s"], rows)
    for reason in made.not_learnt:
        err.print(f"not learnt: {reason}", style="yellow", soft_wrap=True)
