"""Run `twin sched study`: options -> logs read, generators fitted, policies trained, a report written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import orjson

from clustertwin.cli.output import print_table
from clustertwin.cli.sched_options import SchedStudyOptions
from clustertwin.cli.step_progress import step_progress
from clustertwin.core import files
from clustertwin.core.errors import SettingsError
from clustertwin.core.extras import require
from clustertwin.workload import generators
from clustertwin.workload.formats import read
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import stated_machine_size
from clustertwin.workload.rl.evolution_strategies import EvolutionSettings
from clustertwin.workload.rl.policy_training import TrainSettings
from clustertwin.workload.rl.source_study import (
    SourceResult,
    SourceStudySettings,
    TrainingSource,
    as_html,
    compare_sources,
    split,
)
from clustertwin.workload.simulator import SchedulingRules


def run_study(options: SchedStudyOptions) -> list[SourceResult]:
    """Compare the sources. Also writes the results to study.json and study.html in --out."""
    require("safetensors", "rl")  # a missing package should be reported before the work begins
    if options.ppo_rounds:
        require("torch", "rl")
    jobs = read(options.trace, lenient=options.lenient)
    training, evaluation = split(jobs, options.held_out, options.stretches)
    synthetic = {name: _generated(name, training, options.times) for name in options.generator}
    synthetic |= dict(_named_log(text, options.lenient) for text in options.synthetic)
    train_settings = TrainSettings(options.ppo_rounds, options.evolve_rounds, start="order")
    train_settings = train_settings.with_sequences(options.sequences)
    # The evolution of all weights takes most of the time, but sources differ mainly in the ten weights of the first
    # stage. It therefore keeps the default number of sequences.
    evolve = replace(train_settings.evolve, sequences=EvolutionSettings().sequences)
    settings = SourceStudySettings(
        SchedulingRules(options.procs or stated_machine_size(jobs, options.unit), backfill=options.backfill),
        replace(train_settings, evolve=evolve),
        range(options.seeds),
        options.unit,
        windows=options.windows,
        both=options.both,
        resume=not options.restart,
    )
    with step_progress() as show:
        results = compare_sources(
            training, evaluation, synthetic, settings, options.out,
            lambda name, seed: show(f"training on {name}, seed {seed}", 0, 0),
        )  # fmt: skip
    _write_report(options, results, _facts(options, settings, len(training), sum(map(len, evaluation))))
    return results


def print_results(options: SchedStudyOptions, results: Sequence[SourceResult]) -> None:
    """The results as a table."""
    print_table(
        f"{options.trace.name}: bounded slowdown on {options.windows} held-out windows, "
        f"backfilling: {options.backfill}",
        ["trained on, or heuristic", "slowdown", "95 %", "to real", "95 %"],
        [
            [
                result.name,
                result.slowdown,
                f"{result.low:.4g} – {result.high:.4g}",
                result.ratio,
                f"{result.ratio_low:.3f} – {result.ratio_high:.3f}",
            ]
            for result in results
        ],
    )


def _write_report(options: SchedStudyOptions, results: Sequence[SourceResult], facts: dict[str, object]) -> None:
    document = orjson.dumps([asdict(result) for result in results], option=orjson.OPT_INDENT_2)
    files.write(options.out / "study.json", document)
    title = f"Policies trained on {options.trace.name} and on synthetic logs"
    files.write(options.out / "study.html", as_html(results, title, facts))


def _facts(
    options: SchedStudyOptions, settings: SourceStudySettings, training: int, evaluation: int
) -> dict[str, object]:
    return {
        "log": options.trace.name,
        "training part": f"{training:,} jobs",
        "evaluated on": f"{options.windows} windows of {evaluation:,} held-out jobs",
        "stretches": options.stretches,
        "length of generated logs": f"{options.times:g} times the training part",
        "machine": f"{settings.rules.procs:,} {options.unit}",
        "backfilling": options.backfill,
        "seeds": options.seeds,
        "PPO rounds": options.ppo_rounds,
        "evolution rounds": options.evolve_rounds,
        "sequences per generation": options.sequences,
    }


def _generated(name: str, training: Jobs, times: float) -> TrainingSource:
    """A generator fitted to the training part; it makes a new log for every seed."""
    fitted = generators.make(name).fit(training, np.random.default_rng(0))
    return lambda seed: fitted.sample(round(times * len(training)), np.random.default_rng(seed))


def _named_log(text: str, lenient: bool) -> tuple[str, TrainingSource]:
    name, _, path = text.partition("=")
    if not path:
        raise SettingsError(f"--synthetic takes NAME=FILE, not {text!r}")
    jobs = read(Path(path), lenient=lenient)
    return name, lambda seed: jobs
