"""Run `twin sched train`: options -> logs, synthetic jobs if requested, a trained policy file."""

from __future__ import annotations

from pathlib import Path

from clustertwin.cli.sched_options import TrainOptions
from clustertwin.cli.sched_progress import training_bar
from clustertwin.core.errors import SettingsError
from clustertwin.core.extras import require
from clustertwin.workload.formats import read
from clustertwin.workload.machine_size import stated_machine_size
from clustertwin.workload.rl.policy_training import TrainedPolicy, TrainSettings, parse_ranges, train
from clustertwin.workload.rl.synthetic_log import synthetic_log
from clustertwin.workload.rl.training_sequences import OtherMachine, TrainingData
from clustertwin.workload.simulator import SchedulingRules
from clustertwin.workload.simulator.admission import admit

MOST_PROCS = 10_000_000


def run_training(options: TrainOptions) -> TrainedPolicy:
    """Train on the log, on synthetic jobs, or on both."""
    require("safetensors", "rl")  # a missing package should be reported before the work begins
    if options.ppo_rounds:
        require("torch", "rl")
    if not options.real and not options.generator:
        raise SettingsError("--no-real leaves no jobs to train on; set a --generator")
    jobs, held_out = read(options.trace, lenient=options.lenient), parse_ranges(options.hold_out)
    procs = options.procs or stated_machine_size(jobs, options.unit)
    logs = [jobs] if options.real else []
    if options.generator:
        logs.append(synthetic_log(jobs, held_out, options.generator, options.generated, options.seed))
    first, *more = [admit(log, procs, unit=options.unit) for log in logs]
    unseen = first.ranges(held_out, len(jobs)) if options.real else ()
    others = [_other_machine(path, options) for path in options.across]
    data = TrainingData(first.records, unseen, [each.records for each in more], others)
    rules = SchedulingRules(procs, backfill=options.backfill)
    settings = TrainSettings(options.ppo_rounds, options.evolve_rounds, seed=options.seed, start=options.start)
    settings = settings.with_sequences(options.sequences)
    with training_bar(settings) as report:
        return train(data, rules, settings, options.out, report, not options.restart, options.engine)


def _other_machine(text: str, options: TrainOptions) -> OtherMachine:
    """`LOG` or `LOG=PROCS` -> the jobs and the size of their machine."""
    path, _, size = text.partition("=")
    if size and not (size.isdecimal() and 0 < int(size) <= MOST_PROCS):
        raise SettingsError(f"--across is LOG or LOG=PROCS with 1 to {MOST_PROCS:,} processors, not {text!r}")
    jobs = read(Path(path), lenient=options.lenient)
    try:
        procs = int(size) if size else stated_machine_size(jobs, options.unit)
    except SettingsError as error:
        raise SettingsError(f"{path} does not state the size of its machine; use --across {path}=PROCS") from error
    return OtherMachine(admit(jobs, procs, unit=options.unit).records, procs)
