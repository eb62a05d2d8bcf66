"""Fidelity and attacks against ε: a log -> a table of waits, distributions and attack AUCs, with `crossover` beside it.

    python benchmarks/privacy.py LOG --procs 100 --seeds 5

Every seed is a new model with noise of its own. Waits are simulated under EASY. The attacks are those of the scorecard:
AUC 0.5 is chance, and the hold-out attacks a real log of other people.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clustertwin.workload.clean import clean
from clustertwin.workload.fidelity import scorecard
from clustertwin.workload.fidelity.scorecard import Scorecard
from clustertwin.workload.formats import read
from clustertwin.workload.generators import make
from clustertwin.workload.generators.private import Private
from clustertwin.workload.jobs import Jobs
from clustertwin.workload.machine_size import counted_sizes, machine_size

EPSILONS = (1.0, 4.0, 8.0, 16.0, 32.0, float("inf"))
HEAD = ("", "EASY wait / real", "load", "KS run", "row AUC", "user-days", "found at 1 %", "jobs", "user names")


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    cards: list[Scorecard]

    def cells(self) -> list[str]:
        """Median (smallest-largest) over the seeds."""
        columns = [
            [c.scheduler["EASY"].synthetic.wait_s / c.scheduler["EASY"].real.wait_s for c in self.cards],
            [c.load.synthetic for c in self.cards],
            [c.marginals["run"].ks_complement for c in self.cards],
            [c.c2st.row_auc for c in self.cards],
            [c.attacks.user_days.synthetic.auc for c in self.cards],
            [c.attacks.user_days.synthetic.tpr_at_1pct_fpr for c in self.cards],
            [c.attacks.single_jobs.synthetic.auc for c in self.cards],
            [c.attacks.user_names.synthetic.auc for c in self.cards],
        ]
        return [self.name, *(f"{np.median(v):.3g} ({min(v):.3g}–{max(v):.3g})" for v in columns)]


def offered(log: Jobs, procs: int) -> float:
    return float((counted_sizes(log) * log.run_s).sum() / procs / np.ptp(log.submit_s))


def measure(log: Jobs, procs: int, epsilons: tuple[float, ...], seeds: int, public_load: bool) -> list[Row]:
    """One row for each ε, and `crossover`."""
    fitted = make("crossover").fit(log, np.random.default_rng(0))
    rows = [Row("crossover", [scorecard(log, fitted.sample(len(log), np.random.default_rng(seed)), "", procs)
                              for seed in range(seeds)])]  # fmt: skip
    load = offered(log, procs) if public_load else None
    for epsilon in epsilons:
        cards = []
        for seed in range(seeds):
            model = Private(epsilon, machine=procs, public_load=load, noise_seed=seed).fit(
                log, np.random.default_rng(0)
            )
            jobs = model.sample(max(model.expected_jobs, 100), np.random.default_rng(seed))
            cards.append(scorecard(log, jobs, "", procs))
        rows.append(Row(f"private, ε = {epsilon:g}", cards))
    return rows


def holdout(card: Scorecard) -> list[str]:
    """What the same attacks reach against real jobs of other people."""
    attacks = card.attacks
    auc = [attacks.user_days.holdout.auc, attacks.user_days.holdout.tpr_at_1pct_fpr, attacks.single_jobs.holdout.auc,
           attacks.user_names.holdout.auc]  # fmt: skip
    return ["real, other people", "", "", "", "", *(f"{value:.3g}" for value in auc)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    parser.add_argument("--procs", type=int, help="size of the machine (default: as the log states it)")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilon", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--public-load", action="store_true", help="take the offered load as published")
    options = parser.parse_args()
    log = clean(read(options.log, lenient=True)).jobs
    procs = options.procs or machine_size(log)
    rows = measure(log, procs, tuple(options.epsilon), options.seeds, options.public_load)
    lines = [list(HEAD), ["---"] * len(HEAD), holdout(rows[0].cards[0]), *(row.cells() for row in rows)]
    for line in lines:
        print("| " + " | ".join(line) + " |")


if __name__ == "__main__":
    main()
