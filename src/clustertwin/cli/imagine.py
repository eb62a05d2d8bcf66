"""`twin trace generate` and `twin trace study`: synthetic job logs, and how well each generator makes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from rich.progress import Progress

from clustertwin.cli.output import Json, err, print_json, print_table

Force = typer.Option(False, help="Overwrite what is already there.")
Lenient = typer.Option(False, help="Mend what can be mended in the real log.")


def generate(
    real: Path = typer.Argument(help="The log to learn from, or a directory --save wrote."),
    out: Path = typer.Option(..., help="Where to; the suffix chooses the format."),
    generator: str = typer.Option("crossover", help="Which; `twin trace generators` lists them."),
    jobs: int = typer.Option(None, min=1, help="How many jobs (default: as many as the log has)."),
    seed: int = typer.Option(0, help="The same seed gives the same jobs."),
    load: float = typer.Option(1.0, help="How much more work a day: 1.3."),
    nodes: int = typer.Option(None, min=1, help="Another machine, as busy as the log's."),
    users: list[str] = typer.Option([], "--user", metavar="NAME=FACTOR", help="A user submits more or less: alice=2."),
    sizes: list[str] = typer.Option([], "--size", metavar="RANGE=FACTOR", help="More or fewer jobs: 1-8=2, 513-=0.5."),
    days: float = typer.Option(None, help="A period instead of a number of jobs."),
    start: datetime = typer.Option(None, formats=["%Y-%m-%d"], help="The first day, UTC."),
    save: Path = typer.Option(None, help="Also keep what was learnt, in this directory."),
    lenient: bool = Lenient,
    force: bool = Force,
    json: bool = Json,
) -> None:
    """Make a synthetic log like a real one, or like it but for something."""
    from clustertwin.workload.formats import refuse_existing, write
    from clustertwin.workload.generators.request import Request, produce

    refuse_existing(out, force)
    start_s = start.replace(tzinfo=UTC).timestamp() if start else None
    asked = Request(generator, jobs, seed, load, nodes, _factors(users), _factors(sizes), days, start_s)
    made = produce(real, asked, lenient, save, force)
    written = write(_counted(made.blocks, made.expected), out, force)
    if json:
        print_json({"out": str(out), "jobs": written, "generator": made.generator, "seed": seed, "fit_s": made.fit_s})
    else:
        typer.echo(f"{out}: {written} jobs ({made.generator}, seed {seed})")


def generators(json: bool = Json) -> None:
    """List the generators there are."""
    from clustertwin.workload.generators import DEFAULT, GENERATORS, names

    lines = {name: GENERATORS[name].line if name in GENERATORS else "a plug-in" for name in names()}
    if json:
        print_json({"default": DEFAULT, "generators": lines})
    else:
        print_table("Generators", ["name", "what"], list(lines.items()))


def study(
    real: Path = typer.Argument(help="The real log."),
    out: Path = typer.Option(..., help="A directory for study.html, study.json and the synthetic logs."),
    chosen: str = typer.Option(
        "crossover,bootstrap,lublin,gaussian-copula", "--generators", help="Names, by commas; `all` for every one."
    ),
    published: Path = typer.Option(None, help="A directory of synthetic logs others made."),
    seeds: int = typer.Option(10, min=1, help="Synthetic logs of each generator."),
    slow_seeds: int = typer.Option(None, min=1, help="The same, of those that train long."),
    procs: int = typer.Option(None, min=1, help="Nodes (or cpus) of the machine."),
    lenient: bool = Lenient,
    force: bool = Force,
    json: bool = Json,
) -> None:
    """Every generator against one real log, in one table, beside real against real."""
    from clustertwin.workload.fidelity import Sample
    from clustertwin.workload.formats import read_report, refuse_existing
    from clustertwin.workload.generators import names
    from clustertwin.workload.study import study as run

    for name in ("study.html", "study.json"):
        refuse_existing(out / name, force)
    truth = Sample.of(read_report(real, lenient), real.stem)
    files = sorted(path for path in published.iterdir() if path.is_file()) if published else []
    others = [Sample.of(read_report(path, lenient=True), path.stem) for path in files]
    which = names() if chosen == "all" else tuple(name.strip() for name in chosen.split(","))
    with err.status("") as status:
        result = run(truth, which, others, out / "logs", seeds, slow_seeds, procs, done=status.update)
    _write_study(result, out, force)
    if json:
        print_json(result.document())
    else:
        _print_study(result)


def _factors(texts: Iterable[str]) -> dict[str, float]:
    """`alice=2` -> {"alice": 2.0}"""
    pairs = [text.rpartition("=") for text in texts]
    try:
        return {name: float(factor) for name, _, factor in pairs}
    except ValueError as error:
        raise typer.BadParameter(f"{error}; write NAME=FACTOR, such as alice=2") from error


def _counted(blocks: Iterable[Any], expected: int | None) -> Iterator[Any]:
    with Progress(console=err, transient=True, disable=expected is not None and expected < 200_000) as progress:
        task = progress.add_task("generating", total=expected)
        for block in blocks:
            yield block
            progress.advance(task, len(block))


def _write_study(result: Any, out: Path, force: bool) -> None:
    import orjson

    from clustertwin.workload.formats import writing
    from clustertwin.workload.study import page

    out.mkdir(parents=True, exist_ok=True)
    with writing(out / "study.json", force) as file:
        file.write(orjson.dumps(result.document(), option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY))
    with writing(out / "study.html", force) as file:
        file.write(page(result).encode())
    err.print(str(out / "study.html"), soft_wrap=True)


def _print_study(result: Any) -> None:
    from clustertwin.workload.study import Row, cell

    truth = Row("real", "real", {measure: [value] for measure, value in result.real.items()})
    for title, part in _parts(result.measures):
        rows = [(row.name, row.seeds, *(cell(row, measure) for measure in part)) for row in (truth, *result.rows)]
        print_table(title, ["", "seeds", *part], rows)


def _parts(measures: tuple[str, ...]) -> list[tuple[str, list[str]]]:
    """Three tables that fit a terminal."""
    alike = [measure for measure in measures if measure.startswith("KS ")]
    order = [measure for measure in measures if measure.startswith(("lag", "Fano", "load", "EASY"))]
    rest = [measure for measure in measures if measure not in alike and measure not in order]
    titles = ("Distributions", "Arrivals, load, and what a scheduler sees", "Told apart, copied, valid")
    return list(zip(titles, (alike, order, rest), strict=True))
