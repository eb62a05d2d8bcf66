"""`twin trace`: job logs — convert, describe, clean, anonymise, compare."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from clustertwin.cli.app import group
from clustertwin.cli.imagine import generate, generators, study
from clustertwin.cli.output import Json, err, print_json, print_table
from clustertwin.core.errors import SettingsError

app = group("Job logs: convert, describe, clean, anonymise, generate, compare.")

In = typer.Argument(help="A job log: SWF, sacct --parsable2, ALCF CSV, SuperCloud CSV or Parquet; .gz is fine.")
Out = typer.Argument(help="Where to; the suffix chooses the format (.swf .csv .sacct .parquet, and .gz).")
Lenient = typer.Option(False, help="Mend what can be mended, drop what cannot, and list every line.")
From = typer.Option(None, "--from", help="Format of the input: swf, sacct, alcf, supercloud, parquet.")
To = typer.Option(None, "--to", help="Format of the output, where the suffix does not say.")
Zone = typer.Option(None, "--timezone", help="Where the log's clock stood, such as Europe/Rome.")
Force = typer.Option(False, help="Overwrite what is already there.")
Procs = typer.Option(None, "--procs", min=1, help="Nodes (or cpus, where a log has no nodes) of the machine.")

PICTURES = (".png", ".svg", ".pdf", ".html")
#: Findings shown to a person; the JSON document has them all.
SHOWN = 10


@contextmanager
def _bar(path: Path) -> Iterator[Any]:
    """Progress over a file's bytes, for files that take a while."""
    total = path.stat().st_size if path.is_file() else 0
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=err, transient=True, disable=total < 32 << 20) as progress:
        task = progress.add_task(path.name, total=total)
        yield lambda done: progress.update(task, completed=done)


def _read(path: Path, lenient: bool, format: str | None = None, timezone: str | None = None) -> Any:
    from clustertwin.workload.formats import read_report

    with _bar(path) as progress:
        reading = read_report(path, lenient, format, timezone, progress)
    for found in reading.findings[:SHOWN]:
        where = f"{path}:{found.line}" if found.line is not None else str(path)
        fate = f"{found.fate}{', ' + found.remedy if found.remedy else ''}"
        err.print(
            f"{where}: {found.reason} ({fate})", style="dim" if found.fate == "noted" else "yellow", soft_wrap=True
        )
    if len(reading.findings) > SHOWN:
        more = len(reading.findings) - SHOWN
        err.print(f"{path}: … and {more} more findings (--json lists them all)", style="dim", soft_wrap=True)
    return reading


def _said(reading: Any) -> dict[str, Any]:
    return {"format": reading.format, "jobs": len(reading.jobs), "findings": [asdict(f) for f in reading.findings]}


def _written(path: Path, jobs: int, extra: dict[str, Any], json: bool) -> None:
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
    """Rewrite a log in another format."""
    from clustertwin.workload.formats import refuse_existing, writable, write

    refuse_existing(out, force)
    to = to or writable(out)
    reading = _read(source, lenient, source_format, timezone)
    jobs = write(reading.jobs, out, force, to)
    _written(out, jobs, {"format": to, "read": _said(reading)}, json)


@app.command()
def clean(
    source: Path = In,
    out: Path = Out,
    lenient: bool = Lenient,
    timezone: str = Zone,
    force: bool = Force,
    json: bool = Json,
) -> None:
    """Leave out jobs that never ran, still run, have no size or do not fit the machine; say which."""
    from clustertwin.workload.clean import clean as tidy
    from clustertwin.workload.formats import refuse_existing, write

    refuse_existing(out, force)
    reading = _read(source, lenient, timezone=timezone)
    cleaned = tidy(reading.jobs)
    jobs = write(cleaned.jobs, out, force)
    if not json:
        for reason, ids in cleaned.removed.items():
            err.print(f"{len(ids)} left out: {reason} (job {ids[0]}{' …' if len(ids) > 1 else ''})", soft_wrap=True)
    _written(out, jobs, {"removed": cleaned.removed, "read": _said(reading)}, json)


@app.command()
def anonymise(
    source: Path = In,
    out: Path = Out,
    secret_file: Path = typer.Option(
        None, exists=True, dir_okay=False, help="A file with the secret; logs with one secret can be joined."
    ),
    lenient: bool = Lenient,
    timezone: str = Zone,
    force: bool = Force,
    json: bool = Json,
) -> None:
    """Replace users, groups and queues by keyed pseudonyms and drop names, headers and ids.

    Without --secret-file a random secret is used once and forgotten.
    """
    import secrets

    from clustertwin.workload.anonymise import anonymise as hide
    from clustertwin.workload.formats import refuse_existing, write

    refuse_existing(out, force)
    secret = secret_file.read_bytes().strip() if secret_file else secrets.token_bytes(32)
    reading = _read(source, lenient, timezone=timezone)
    jobs = write(hide(reading.jobs, secret), out, force)
    _written(out, jobs, {"joinable": secret_file is not None}, json)


@app.command()
def describe(
    source: Path = In,
    out: Path = typer.Option(None, help="Draw the log: a .png, .svg, .pdf or .html file."),
    procs: int = Procs,
    lenient: bool = Lenient,
    source_format: str = From,
    timezone: str = Zone,
    force: bool = Force,
    json: bool = Json,
) -> None:
    """How many jobs, how large, how long, when, whose, and how busy the machine was."""
    from clustertwin.workload.describe import describe as look

    if out is not None and out.suffix not in PICTURES:
        raise SettingsError(f"{out}: a log is drawn as {', '.join(PICTURES)}")
    reading = _read(source, lenient, source_format, timezone)
    described = look(reading.jobs, procs)
    if out is not None:
        _draw(reading.jobs, described, source.name, out, force)
    if json:
        print_json({**asdict(described), "read": _said(reading)})
    else:
        _print_description(source, described)


def _draw(jobs: Any, described: Any, title: str, out: Path, force: bool) -> None:
    from clustertwin.workload.formats import writing
    from clustertwin.workload.portrait import draw, page

    with writing(out, force) as file:
        if out.suffix == ".html":
            file.write(page(jobs, described, title).encode())
            return
        draw(jobs, described, title).savefig(file, format=out.suffix.removeprefix("."), dpi=120)


def _print_description(source: Path, described: Any) -> None:
    from clustertwin.workload.describe import MEASURED, QUANTILES, short

    when = f", {described.first} to {described.last}" if described.first else ""
    days, on = described.span_s / 86400, described.machine
    typer.echo(f"{source.name}: {described.jobs} jobs in {days:.1f} days{when}")
    typer.echo(f"{described.users} users in {described.groups} groups, Gini {described.user_gini:.2f}")
    typer.echo(f"offered load {described.offered_load:.3f} of {on.procs} {on.unit}")
    typer.echo("ended: " + ", ".join(f"{word} {share:.1%}" for word, share in described.status.items()))
    columns = ["", "known", "mean", "least", *(f"{q:.0%}" for q in QUANTILES), "most"]
    rows = []
    for name, s in described.columns.items():
        values = (s.mean, s.least, *s.quantiles, s.most)
        rows.append((MEASURED[name], s.known, *(short(value, name) for value in values)))
    print_table("Columns", columns, rows)
    print_table("Busiest users", ["user", "share"], list(described.top_users.items()))


@app.command()
def compare(
    real: Path = typer.Argument(help="The real log."),
    synthetic: list[Path] = typer.Argument(help="Synthetic logs."),
    out: Path = typer.Option(None, help="A directory for report.html and scorecard.json."),
    procs: int = Procs,
    seed: int = typer.Option(0, help="Of the bootstrap row and of the classifier's folds."),
    lenient: bool = Lenient,
    force: bool = Force,
    json: bool = Json,
) -> None:
    """Score synthetic logs against the real one, beside what two halves of the real one score."""
    from clustertwin.workload.fidelity import Sample
    from clustertwin.workload.fidelity import compare as score

    _refuse_report(out, force)
    truth = Sample.of(_read(real, lenient), real.stem)
    others = [Sample.of(_read(path, lenient), path.stem) for path in synthetic]
    with Progress(console=err, transient=True) as progress:
        task = progress.add_task("comparing", total=len(others) + 3)
        cards = score(truth, others, procs, seed, done=lambda name: progress.advance(task))
    if out is not None:
        _write_report(out, truth, others, cards, force)
    if json:
        print_json([card.document() for card in cards])
    else:
        _print_cards(cards)


def _refuse_report(out: Path | None, force: bool) -> None:
    from clustertwin.workload.formats import refuse_existing

    if out is not None:
        for name in ("report.html", "scorecard.json"):
            refuse_existing(out / name, force)


def _write_report(out: Path, real: Any, synthetic: Any, cards: Any, force: bool) -> None:
    import orjson

    from clustertwin.workload.fidelity.report import report
    from clustertwin.workload.formats import writing

    out.mkdir(parents=True, exist_ok=True)
    option = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    with writing(out / "scorecard.json", force) as file:
        file.write(orjson.dumps([card.document() for card in cards], option=option))
    with writing(out / "report.html", force) as file:
        file.write(report(real, synthetic, cards).encode())
    err.print(str(out / "report.html"), soft_wrap=True)


def _print_cards(cards: Any) -> None:
    names = cards[-1].columns
    like, apart, seen = [], [], []
    for card in cards:
        scores = [f"{card.marginals[name].ks_complement:.3f}" if name in card.marginals else "" for name in names]
        like.append((card.name, *scores))
        apart.append((card.name, f"{card.c2st.row_auc:.3f}", f"{card.c2st.window_auc:.3f}",
                      f"{card.validity.share:.1%}", f"{card.privacy.copy_rate:.3f}"))  # fmt: skip
        arrive, easy = card.arrivals, card.scheduler["EASY"]
        lag, lag_real = arrive.autocorrelation[1], arrive.autocorrelation_real[1]
        fano, fano_real = arrive.fano[20], arrive.fano_real[20]
        seen.append((card.name, f"{lag:.2f} ({lag_real:.2f})", f"{fano:.1f} ({fano_real:.1f})",
                     f"{card.load.ratio:.2f}", f"{easy.synthetic.wait_s:,.0f} ({easy.real.wait_s:,.0f})"))  # fmt: skip
    print_table("KS complement (1: the same distribution)", ["", *names], like)
    print_table("Told apart (AUC, 0.5: not)", ["", "rows", "windows", "valid", "copies"], apart)
    print_table("Arrivals, load and waits (real)", ["", "lag 1", "Fano 20", "load ratio", "EASY wait, s"], seen)


app.command()(generate)
app.command()(generators)
app.command()(study)
