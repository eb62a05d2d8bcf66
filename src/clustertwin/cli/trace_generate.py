"""`twin trace generate`, `generators` and `study`: synthetic job logs, and how well each generator makes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress

from clustertwin.cli.log_argument import log_argument
from clustertwin.cli.options import MOST_SEED, options
from clustertwin.cli.output import Json, err, print_json, print_table
from clustertwin.core.errors import SettingsError
from clustertwin.core.formatting import visible

if TYPE_CHECKING:
    from clustertwin.workload.generators.generate_log import GeneratedLog
    from clustertwin.workload.jobs import Jobs
    from clustertwin.workload.studies.user_feedback import ReactingLog

Force = Annotated[bool, typer.Option(help="Overwrite existing files.")]
Lenient = Annotated[bool, typer.Option(help="Repair or drop faulty lines of the real log.")]


@dataclass(frozen=True)
class TraceGenerateOptions:
    real: Annotated[Path, log_argument("The log to learn from, or a directory written with --save")]
    out: Annotated[Path, typer.Option(help="Output file; its suffix chooses the format.")]
    generator: Annotated[str, typer.Option(help="Generator; `twin trace generators` lists them.")] = "crossover"
    jobs: Annotated[int | None, typer.Option(min=1, help="Number of jobs (default: as many as the log has).")] = None
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Random seed; the same seed gives the same jobs.")] = 0
    load: Annotated[float, typer.Option(help="Factor for the work per day, such as 1.3.")] = 1.0
    nodes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=2**31,
            help="Size of another machine with the same utilisation: the same users submit more or less.",
        ),
    ] = None
    feedback: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="NODES",
            help="Size of another machine with the same jobs: users who wait less submit sooner.",
        ),
    ] = None
    users: Annotated[
        list[str], typer.Option("--user", metavar="NAME=FACTOR", help="Factor for the jobs of one user: alice=2.")
    ] = field(default_factory=list)
    sizes: Annotated[
        list[str],
        typer.Option("--size", metavar="RANGE=FACTOR", help="Factor for jobs of some sizes: 1-8=2, 513-=0.5."),
    ] = field(default_factory=list)
    days: Annotated[float | None, typer.Option(help="Length of the log in days, instead of a number of jobs.")] = None
    start: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="First day of the synthetic log, in UTC.")
    ] = None
    budget_minutes: Annotated[
        float | None,
        typer.Option(min=0.01, help="Processor time for the training of findiff or realtabformer (default: 45)."),
    ] = None
    save: Annotated[Path | None, typer.Option(help="Also save the fitted generator to this directory.")] = None
    lenient: Lenient = False
    force: Force = False
    json: bool = Json


@options(TraceGenerateOptions)
def generate(options: TraceGenerateOptions) -> None:
    """Make a synthetic log like a real one, or with a changed load, machine, user or size mix."""
    from clustertwin.core.files import refuse_existing
    from clustertwin.workload.formats import write
    from clustertwin.workload.generators import WorkloadChange
    from clustertwin.workload.generators.generate_log import GenerateSettings
    from clustertwin.workload.generators.generate_log import generate as run

    refuse_existing(options.out, options.force)
    if options.feedback and options.nodes:
        raise SettingsError("--nodes changes the number of jobs, and --feedback keeps them: give one of the two")
    start_s = options.start.replace(tzinfo=UTC).timestamp() if options.start else None
    users, sizes = _factors(options.users), _factors(options.sizes)
    change = WorkloadChange(options.load, options.nodes, users, sizes, start_s, options.days)
    settings = GenerateSettings(options.generator, options.jobs, options.seed, change, options.budget_minutes)
    log = run(options.real, settings, options.lenient, options.save, options.force)
    blocks = _with_progress(log.blocks, log.expected)
    reacting = _reacting(blocks, options.feedback) if options.feedback else None
    if reacting:
        blocks = iter([reacting.jobs])
    elif log.starts_on:
        blocks = _started(blocks, log.starts_on)
    jobs = write(blocks, options.out, options.force)
    _print_notes(log)
    if options.json:
        document = {"out": str(options.out), "jobs": jobs, "generator": log.generator, "seed": options.seed,
                    "fit_s": log.fit_s, "not_learnt": log.not_learnt, "start_times": bool(log.starts_on),
                    "losses": log.losses}  # fmt: skip
        print_json(document | ({"feedback": reacting.document()} if reacting else {}))
        return
    typer.echo(f"{options.out}: {jobs} jobs ({log.generator}, seed {options.seed})")
    if reacting:
        typer.echo(reacting.summary())


def _print_notes(log: GeneratedLog) -> None:
    if log.starts_on:
        err.print("The submit times of the real log are start times: no job waited, and all fit the machine. "
                  f"The synthetic jobs also carry start times, of a simulated EASY schedule on {log.starts_on:,}.",
                  style="yellow", soft_wrap=True)  # fmt: skip
    if log.losses:
        epochs, last = log.losses[-1]
        err.print(f"trained for {epochs:.3g} epochs: mean loss {log.losses[0][1]:.3g} at first, {last:.3g} at the end")
    for reason in log.not_learnt:
        err.print(f"not learnt: {reason}", style="yellow", soft_wrap=True)


def _started(blocks: Iterable[Jobs], procs: int) -> Iterator[Jobs]:
    from clustertwin.workload.generators.superposition import concatenate
    from clustertwin.workload.studies.recorded_starts import submit_at_start

    yield submit_at_start(concatenate(blocks), procs)


def _reacting(blocks: Iterable[Jobs], procs: int) -> ReactingLog:
    from clustertwin.workload.generators.superposition import concatenate
    from clustertwin.workload.studies.user_feedback import react

    return react(concatenate(blocks), procs)


def generators(json: bool = Json) -> None:
    """List the generators."""
    from clustertwin.workload.generators import DEFAULT, GENERATORS, names

    summaries = {name: GENERATORS[name].summary if name in GENERATORS else "a plug-in" for name in names()}
    if json:
        print_json({"default": DEFAULT, "generators": summaries})
    else:
        print_table("Generators", ["name", "what"], list(summaries.items()))


@dataclass(frozen=True)
class TraceStudyOptions:
    real: Annotated[Path, log_argument("The real log")]
    out: Annotated[Path, typer.Option(help="Output directory for study.html, study.json and the synthetic logs.")]
    generators: Annotated[str, typer.Option(help="Generators, separated by commas, or `all`.")] = (
        "crossover,bootstrap,lublin,gaussian-copula"
    )
    published: Annotated[Path | None, typer.Option(help="Directory of synthetic logs made elsewhere.")] = None
    seeds: Annotated[int, typer.Option(min=1, help="Number of synthetic logs per generator.")] = 10
    slow_seeds: Annotated[int | None, typer.Option(min=1, help="The same for generators that train for long.")] = None
    procs: Annotated[int | None, typer.Option(min=1, help="Size of the machine in nodes (or cpus).")] = None
    lenient: Lenient = False
    force: Force = False
    json: bool = Json


@options(TraceStudyOptions)
def study(options: TraceStudyOptions) -> None:
    """Compare generators on one real log, next to real against real."""
    from clustertwin.core.files import make_directory, refuse_existing
    from clustertwin.workload.fidelity import ComparedLog
    from clustertwin.workload.formats import read_report
    from clustertwin.workload.generators import names
    from clustertwin.workload.studies.generator_study import GeneratorStudySettings
    from clustertwin.workload.studies.generator_study import study as run

    for name in ("study.html", "study.json"):
        refuse_existing(options.out / name, options.force)
    make_directory(options.out)  # an --out that cannot be written is named before the long work
    real = ComparedLog.of(read_report(options.real, options.lenient), visible(options.real.stem))
    paths = sorted(path for path in options.published.iterdir() if path.is_file()) if options.published else []
    published = [ComparedLog.of(read_report(path, lenient=True), visible(path.stem)) for path in paths]
    chosen = names() if options.generators == "all" else [name.strip() for name in options.generators.split(",")]
    settings = GeneratorStudySettings(options.seeds, options.slow_seeds, options.procs)
    with err.status("") as status:
        result = run(real, chosen, published, options.out / "logs", settings, done=status.update)
    for name, reason in result.refused.items():
        err.print(f"without {name}: {reason}", soft_wrap=True)
    _write_study(result, options.out)
    if options.json:
        print_json(result.document())
    else:
        _print_study(result)


def _factors(texts: Iterable[str]) -> dict[str, float]:
    """`alice=2` -> {"alice": 2.0}"""
    pairs = [text.rpartition("=") for text in texts]
    names = [name for name, _, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise typer.BadParameter(f"{name} has more than one factor")
    try:
        return {name: float(factor) for name, _, factor in pairs}
    except ValueError as error:
        raise typer.BadParameter(f"{error}; write NAME=FACTOR, such as alice=2") from error


def _with_progress(blocks: Iterable[Any], expected: int | None) -> Iterator[Any]:
    with Progress(console=err, transient=True, disable=expected is not None and expected < 200_000) as progress:
        task = progress.add_task("generating", total=expected)
        for block in blocks:
            yield block
            progress.advance(task, len(block))


def _write_study(result: Any, out: Path) -> None:
    import orjson

    from clustertwin.core import files
    from clustertwin.workload.studies.generator_study import study_page

    files.write(
        out / "study.json", orjson.dumps(result.document(), option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY)
    )
    files.write(out / "study.html", study_page(result))
    err.print(str(out / "study.html"), soft_wrap=True)


def _print_study(result: Any) -> None:
    from clustertwin.workload.studies.generator_study import cell, in_words, parts

    if words := in_words(result):
        typer.echo(f"{words}\n")
    for question, reading, measures in parts(result.measures):
        rows = [
            (row.name, row.seeds, *(cell(row, measure) for measure in measures))
            for row in (result.real_row, *result.rows)
        ]
        print_table(f"{question} {reading}", ["", "seeds", *measures], rows)
