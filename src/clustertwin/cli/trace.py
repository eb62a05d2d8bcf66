"""`twin trace`: job logs. Convert, describe, clean, anonymise, generate, compare, share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from clustertwin.cli.app import group
from clustertwin.cli.log_argument import log_argument
from clustertwin.cli.options import MOST_SEED, options
from clustertwin.cli.output import Json, err, print_json, print_table
from clustertwin.cli.plot_file import check_plot, write_plot
from clustertwin.cli.step_progress import step_progress
from clustertwin.cli.trace_forecast import forecast
from clustertwin.cli.trace_generate import generate, generators, study
from clustertwin.cli.trace_share import share
from clustertwin.core.formatting import visible

app = group("Job logs: convert, describe, clean, anonymise, generate, compare, study, share, forecast.")

In = log_argument("A job log: SWF, sacct --parsable2, ALCF CSV, SuperCloud CSV or Parquet; may be gzip")
Out = typer.Argument(help="Output file; its suffix chooses the format (.swf .csv .sacct .parquet, also with .gz).")
Lenient = typer.Option(False, help="Repair or drop faulty lines, and list each one.")
From = typer.Option(None, "--from", help="Format of the input: swf, sacct, alcf, supercloud, parquet.")
To = typer.Option(None, "--to", help="Format of the output, if the suffix does not decide it.")
Zone = typer.Option(None, "--timezone", help="Time zone of the log, such as Europe/Rome.")
Force = typer.Option(False, help="Overwrite existing files.")
Procs = typer.Option(None, "--procs", min=1, help="Size of the machine in nodes (in cpus, if the log has no nodes).")

#: How many findings are printed. The JSON document has all of them.
SHOWN = 10


@contextmanager
def _progress_bar(path: Path) -> Iterator[Any]:
    """Progress over the bytes of a large file."""
    total = path.stat().st_size if path.is_file() else 0
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=err, transient=True, disable=total < 32 << 20) as progress:
        task = progress.add_task(path.name, total=total)
        yield lambda position: progress.update(task, completed=position)


def _read(path: Path, lenient: bool, format: str | None = None, timezone: str | None = None) -> Any:
    from clustertwin.workload.formats import read_report

    with _progress_bar(path) as progress:
        parsed = read_report(path, lenient, format, timezone, progress)
    for finding in parsed.findings[:SHOWN]:
        where = f"{path}:{finding.line}" if finding.line is not None else str(path)
        fate = f"{finding.fate}{', ' + finding.remedy if finding.remedy else ''}"
        style = "dim" if finding.fate == "noted" else "yellow"
        err.print(f"{where}: {finding.reason} ({fate})", style=style, soft_wrap=True)
    if len(parsed.findings) > SHOWN:
        more = len(parsed.findings) - SHOWN
        err.print(f"{path}: … and {more} more findings (--json lists all of them)", style="dim", soft_wrap=True)
    return parsed


def _input_document(parsed: Any) -> dict[str, Any]:
    return {"format": parsed.format, "jobs": len(parsed.jobs), "findings": [asdict(f) for f in parsed.findings]}


def _report_written(path: Path, jobs: int, extra: dict[str, Any], json: bool) -> None:
    if json:
        print_json({"out": str(path), "jobs": jobs, **extra})
    else:
        typer.echo(f"{path}: {jobs} jobs")


@app.command()
def convert(
    source: Path = In,
    out: Path = Out,
    lenient: bool = Lenient,
    source_format: str = From,
    to: str = To,
    timezone: str = Zone,
    force: bool = Force,
    json: bool = Json,
) -> None:
    """Convert a log to another format."""
    from clustertwin.core.files import refuse_existing
    from clustertwin.workload.formats import writable, write

    refuse_existing(out, force)
    to = to or writable(out)
    parsed = _read(source, lenient, source_format, timezone)
    jobs = write(parsed.jobs, out, force, to)
    _report_written(out, jobs, {"format": to, "read": _input_document(parsed)}, json)


@app.command()
def clean(
    source: Path = In,
    out: Path = Out,
    lenient: bool = Lenient,
    timezone: str = Zone,
    force: bool = Force,
    json: bool = Json,
) -> None:
    """Remove jobs that never ran, still run, have no size or do not fit the machine, and list them by reason."""
    from clustertwin.core.files import refuse_existing
    from clustertwin.workload.clean import clean as remove_unusable
    from clustertwin.workload.formats import write

    refuse_existing(out, force)
    parsed = _read(source, lenient, timezone=timezone)
    cleaned = remove_unusable(parsed.jobs)
    jobs = write(cleaned.jobs, out, force)
    if not json:
        for reason, ids in cleaned.removed.items():
            err.print(f"{len(ids)} removed: {reason} (job {ids[0]}{' …' if len(ids) > 1 else ''})", soft_wrap=True)
    _report_written(out, jobs, {"removed": cleaned.removed, "read": _input_document(parsed)}, json)


@app.command()
def anonymise(
    source: Path = In,
    out: Path = Out,
    secret_file: Path = typer.Option(
        None, exists=True, dir_okay=False, help="File with a secret; logs with the same secret can be joined."
    ),
    lenient: bool = Lenient,
    timezone: str = Zone,
    force: bool = Force,
    json: bool = Json,
) -> None:
    """Replace users, groups and queues by keyed pseudonyms, and remove names, headers and ids.

    Without --secret-file, a random secret is used once and not stored.
    """
    import secrets

    from clustertwin.core.files import refuse_existing
    from clustertwin.core.foreign_files import read_secret_bytes
    from clustertwin.workload.anonymise import anonymise as pseudonymise
    from clustertwin.workload.formats import write

    refuse_existing(out, force)
    secret = read_secret_bytes(secret_file) if secret_file else secrets.token_bytes(32)
    parsed = _read(source, lenient, timezone=timezone)
    jobs = write(pseudonymise(parsed.jobs, secret), out, force)
    _report_written(out, jobs, {"joinable": secret_file is not None}, json)


@dataclass(frozen=True)
class TraceDescribeOptions:
    source: Annotated[Path, In]
    out: Annotated[Path | None, typer.Option(help="Also plot the log: a .png, .svg, .pdf or .html file.")] = None
    procs: Annotated[
        int | None, typer.Option(min=1, help="Size of the machine in nodes (in cpus, if the log has no nodes).")
    ] = None
    gpus: Annotated[
        int | None, typer.Option(min=1, help="Number of GPUs of the machine, if the log does not state it.")
    ] = None
    lenient: Annotated[bool, typer.Option(help="Repair or drop faulty lines, and list each one.")] = False
    source_format: Annotated[
        str | None, typer.Option("--from", help="Format of the input: swf, sacct, alcf, supercloud, parquet.")
    ] = None
    timezone: Annotated[str | None, typer.Option(help="Time zone of the log, such as Europe/Rome.")] = None
    force: Annotated[bool, typer.Option(help="Overwrite existing files.")] = False
    json: bool = Json


@app.command()
@options(TraceDescribeOptions)
def describe(options: TraceDescribeOptions) -> None:
    """Show sizes, run times, limits, users and the offered load of a log."""
    from clustertwin.workload.description.log_description import describe as summarise
    from clustertwin.workload.description.log_plots import draw, page

    source, out = options.source, options.out
    if out is not None:
        check_plot(out, options.force)
    parsed = _read(source, options.lenient, options.source_format, options.timezone)
    description = summarise(parsed.jobs, options.procs, options.gpus)
    if out is not None:
        drawn = parsed.jobs, description, visible(source.name)
        write_plot(out, lambda: page(*drawn), lambda: draw(*drawn))
    if options.json:
        print_json({**asdict(description), "read": _input_document(parsed)})
    else:
        _print_description(source, description)


def _print_description(source: Path, description: Any) -> None:
    from clustertwin.workload.description.log_description import MEASURED, QUANTILES, short

    period = f", {description.first} to {description.last}" if description.first else ""
    days, machine = description.span_s / 86400, description.machine
    typer.echo(f"{visible(source.name)}: {description.jobs} jobs in {days:.1f} days{period}")
    people = f"{description.users} user{'' if description.users == 1 else 's'}"
    if description.groups:
        people += f" in {description.groups} group{'' if description.groups == 1 else 's'}"
    spread = f"inequality of their job counts {description.user_gini:.2f} (Gini; 0: all equal, 1: one user has all)"
    typer.echo(f"{people}, {spread}")
    size_from = description.machine_source
    if size_from == "its largest job":
        size_from += ": the log states no size, set it with --procs"
    load = f"{description.offered_load:.3f}" if description.span_s else "unknown (all jobs have one submit time)"
    typer.echo(f"offered load {load} on {machine.procs} {machine.unit} ({size_from})")
    if description.gpus is not None:
        gpus = description.gpus
        load = (
            f"offered load {gpus.load:.3f} on {gpus.machine} GPUs"
            if gpus.load is not None
            else ("set their number with --gpus to see their load")
        )
        typer.echo(f"GPUs: {gpus.job_share:.1%} of the jobs, {gpus.gpu_hours:,.0f} GPU hours, at most "
                   f"{gpus.largest_job} in a job; {load}")  # fmt: skip
    if description.submits_are_starts:
        err.print("The submit times are start times: no job waited, and all fit the machine when they are "
                  "submitted. Simulated waits of this log mean nothing.", style="yellow", soft_wrap=True)  # fmt: skip
    typer.echo("status: " + ", ".join(f"{status} {share:.1%}" for status, share in description.status.items()))
    columns = ["", "known", "mean", "min", *(f"{q:.0%}" for q in QUANTILES), "max"]
    rows = []
    for name, s in description.columns.items():
        values = (s.mean, s.least, *s.quantiles, s.most)
        rows.append((MEASURED[name], s.known, *(short(value, name) for value in values)))
    print_table("Columns", columns, rows, whole=columns[:1])
    print_table("Busiest users", ["user", "share of jobs"],
                [(user, f"{share:.1%}") for user, share in description.top_users.items()])  # fmt: skip


@app.command()
def compare(
    real: Path = log_argument("The real log"),
    synthetic: list[Path] = typer.Argument(help="Synthetic logs."),
    out: Path = typer.Option(None, help="Output directory for report.html and scorecard.json."),
    procs: int = Procs,
    seed: int = typer.Option(
        0, min=0, max=MOST_SEED, help="Random seed of the bootstrap and of the classifier's folds."
    ),
    lenient: bool = Lenient,
    force: bool = Force,
    json: bool = Json,
) -> None:
    """Compare synthetic logs with the real log, next to real against real."""
    from clustertwin.core.files import make_directory, refuse_existing
    from clustertwin.workload.fidelity import ComparedLog
    from clustertwin.workload.fidelity import compare as score

    if out is not None:
        for name in ("report.html", "scorecard.json"):
            refuse_existing(out / name, force)
        make_directory(out)  # an --out that cannot be written is named before the long work
    reference = ComparedLog.of(_read(real, lenient), visible(real.stem))
    others = [ComparedLog.of(_read(path, lenient), visible(path.stem)) for path in synthetic]
    with step_progress() as show:
        cards = score(reference, others, procs, seed, show)
    if out is not None:
        _write_report(out, reference, others, cards)
    if json:
        print_json([card.document() for card in cards])
    else:
        _print_meaning(cards[-len(others) :])
        _print_cards(cards)
        _print_notes(cards[-len(others) :])


def _write_report(out: Path, real: Any, synthetic: Any, cards: Any) -> None:
    import orjson

    from clustertwin.core import files
    from clustertwin.workload.fidelity.fidelity_report import report

    option = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    files.write(out / "scorecard.json", orjson.dumps([card.document() for card in cards], option=option))
    files.write(out / "report.html", report(real, synthetic, cards))
    err.print(str(out / "report.html"), soft_wrap=True)


def _print_meaning(cards: Any) -> None:
    """What the tables say, before them."""
    from clustertwin.workload.fidelity.fidelity_words import in_words

    for card in cards:
        typer.echo(f"{card.name}: {card.jobs:,} jobs")
        for sentence in in_words(card):
            typer.echo(f"  {sentence}")
    typer.echo("\nThe rows that begin with `real` compare parts of the real log: no generator needs to be closer.\n")


def _print_cards(cards: Any) -> None:
    names = cards[-1].columns
    marginals, separation, dynamics, attacks = [], [], [], []
    for card in cards:
        scores = [f"{card.marginals[name].ks_complement:.3f}" if name in card.marginals else "" for name in names]
        marginals.append((card.name, *scores))
        separation.append((card.name, f"{card.c2st.row_auc:.3f}", f"{card.c2st.judge_auc:.3f}",
                           f"{card.c2st.window_auc:.3f}",
                           f"{card.validity.share:.1%}", f"{card.privacy.copy_rate:.3f}"))  # fmt: skip
        arrivals, easy = card.arrivals, card.scheduler["EASY"]
        lag, lag_real = arrivals.autocorrelation[1], arrivals.autocorrelation_real[1]
        fano, fano_real = arrivals.fano[20], arrivals.fano_real[20]
        dynamics.append((card.name, f"{lag:.2f} ({lag_real:.2f})", f"{fano:.1f} ({fano_real:.1f})",
                         f"{card.load.ratio:.2f}",
                         f"{easy.synthetic.wait_s:,.0f} ({easy.real.wait_s:,.0f})"))  # fmt: skip
        days, jobs, people = card.attacks.user_days, card.attacks.single_jobs, card.attacks.user_names
        attacks.append((card.name, *(f"{a.synthetic} ({a.holdout})" for a in (days, jobs, people)),
                        days.found, f"{card.attacks.near_copies.share:.1%}"))  # fmt: skip
    print_table("Distributions: KS complement, 1 is the same distribution", ["", *names], marginals)
    print_table("Classifiers: AUC, 0.5 is chance; share of valid jobs; share of exact copies",
                ["", "rows", "judge", "windows", "valid", "copies"],
                separation)  # fmt: skip
    print_table("Arrivals, load and simulated waits (real log in brackets)",
                ["", "lag 1", "Fano 20", "load ratio", "EASY wait, s"], dynamics)  # fmt: skip
    print_table("Attacks: AUC (of the same attack on other real people); user-days found with 1 % false claims",
                ["", "user-days", "jobs", "user names", "user-days found", "near copies"], attacks)  # fmt: skip


def _print_notes(cards: Any) -> None:
    from clustertwin.workload.fidelity.measures.concurrency import concurrency_notes

    for note in dict.fromkeys(note for card in cards for note in card.sample.notes()):
        err.print(note, style="dim", soft_wrap=True)
    for note in dict.fromkeys(note for card in cards for note in concurrency_notes(card.concurrency, card.machine)):
        err.print(note, style="yellow", soft_wrap=True)


app.command()(generate)
app.command()(generators)
app.command()(study)
app.command()(share)
app.command()(forecast)
