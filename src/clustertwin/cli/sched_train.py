"""Run `twin sched train`: options -> a log, synthetic jobs if requested, a trained policy file."""

from __future__ import annotations

from clustertwin.cli.sched_options import TrainOptions
from clustertwin.cli.sched_progress import training_bar
from clustertwin.core.errors import SettingsError
from clustertwin.core.extras import require
from clustertwin.workload.formats import read
from clustertwin.workload.machine_size import stated_machine_size
from clustertwin.workload.rl.policy_training import TrainedPolicy, TrainSettings, parse_ranges, train
from clustertwin.workload.rl.synthetic_log import synthetic_log
from clustertwin.workload.rl.training_sequences import TrainingData
from clustertwin.workload.simulator import SchedulingRules
from clustertwin.workload.simulator.admission import admit


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
    records, *further = [admit(log, procs, unit=options.unit).records for log in logs]
    data = TrainingData(records, held_out if options.real else (), further)
    rules = SchedulingRules(procs, backfill=options.backfill)
    settings = TrainSettings(options.ppo_rounds, options.evolve_rounds, seed=options.seed, start=options.start)
    settings = settings.with_sequences(options.sequences)
    with training_bar(settings) as report:
        return train(data, rules, settings, options.out, report, not options.restart, options.engine)
