"""`twin trace share`: a job log -> a synthetic log to publish, with a card that states its guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from clustertwin.cli.log_argument import log_argument
from clustertwin.cli.options import MOST_SEED, options
from clustertwin.cli.output import Json, err, print_json, print_table
from clustertwin.cli.step_progress import step_progress


@dataclass(frozen=True)
class TraceShareOptions:
    real: Annotated[Path, log_argument("The real log: SWF, sacct --parsable2, ALCF CSV, SuperCloud CSV or Parquet")]
    out: Annotated[Path, typer.Option(help="New directory for the synthetic log, the model and the card.")]
    epsilon: Annotated[float, typer.Option(help="Privacy budget ε for each user; inf switches the noise off.")] = 8.0
    delta: Annotated[float, typer.Option(help="δ: the probability with which the promise may fail.")] = 1e-6
    procs: Annotated[
        int | None, typer.Option(min=1, help="Size of the machine in nodes (or cpus), if the log does not state it.")
    ] = None
    public_load: Annotated[
        float | None, typer.Option(help="Offered load, if your site publishes it anyway; it then costs no ε.")
    ] = None
    figures: Annotated[
        bool, typer.Option(help="State fidelity and attacks on the card; the guarantee does not cover these figures.")
    ] = True
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_SEED, help="Random seed of the synthetic jobs. The noise has no seed.")
    ] = 0
    lenient: Annotated[bool, typer.Option(help="Repair or drop faulty lines of the real log.")] = False
    timezone: Annotated[str | None, typer.Option(help="Time zone of the log, such as Europe/Rome.")] = None
    json: bool = Json


@options(TraceShareOptions)
def share(options: TraceShareOptions) -> None:
    """Write a synthetic log to publish, with differential privacy for every user and a card that states it."""
    from clustertwin.core.extras import require
    from clustertwin.workload.formats import read
    from clustertwin.workload.sharing.share_card import card_document
    from clustertwin.workload.sharing.share_directory import refuse_used, write_shared
    from clustertwin.workload.sharing.share_log import ShareSettings
    from clustertwin.workload.sharing.share_log import share as run

    refuse_used(options.out)
    if options.epsilon != float("inf"):
        require("opacus", "privacy")
    log = read(options.real, options.lenient, timezone=options.timezone)
    settings = ShareSettings(options.epsilon, options.delta, options.procs, options.public_load, options.seed)
    with step_progress() as show:
        shared = run(log, settings, show)
    write_shared(shared, options.out, options.figures)
    if options.json:
        print_json({"out": str(options.out), **card_document(shared)})
    else:
        _print_shared(options.out, shared)


def _print_shared(out: Path, shared: Any) -> None:
    from clustertwin.workload.sharing.share_card import MOSTLY_NOISE, far_from_real

    guarantee, easy = shared.model.guarantee, shared.fidelity.scheduler["EASY"]
    for reason, jobs in shared.removed.items():
        err.print(f"{jobs} jobs left out: {reason}", soft_wrap=True)
    promise = f"ε = {guarantee.epsilon:.3g}, δ = {guarantee.delta:.3g} for {guarantee.unit}"
    typer.echo(f"{out}: {len(shared.jobs):,} jobs (real log: {shared.real_jobs:,}); {promise}")
    typer.echo(f"mean wait under EASY: {easy.synthetic.wait_s:,.0f} s (real log: {easy.real.wait_s:,.0f} s; simulated)")
    if shared.model.mostly_noise:
        err.print(MOSTLY_NOISE, style="yellow", soft_wrap=True)
    for note in far_from_real(shared):
        err.print(note, style="yellow", soft_wrap=True)
    if shared.held_out is None:
        typer.echo("attacks: not measured, because the log has too few users to hold some of them out")
        return
    rows = []
    for name in ("user_days", "single_jobs", "shifted_jobs", "nearest_jobs"):
        result = getattr(shared.held_out.attacks, name)
        rows.append((name.replace("_", " "), result.synthetic, result.found, result.holdout))
    units = "users, or days of jobs without a user," if guarantee.protects_days else "users"
    title = f"Attacks ({shared.held_out.users} {units} held out)"
    print_table(title, ["", "AUC", "found at 1 % false positives", "AUC, other people"], rows)
