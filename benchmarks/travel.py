"""Policies that travel: one policy trained on all logs but one, on the log left out, beside every heuristic.

    python benchmarks/travel.py DATA --rounds 60 --out travel

`DATA` holds the logs of the Parallel Workloads Archive and of ALCF (see docs/results-rl.md). Each log is left out once.
Scheduling is EASY backfilling with the time limits of the log. The last row bounds starvation: a job that has waited
longer than `--patience` times the longest limit of the log goes first. Trainings resume from `--out`.

Then the log's first half chooses between the learned policy, with patience, and the heuristics; the second half judges
the choice.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from clustertwin.workload.formats import read
from clustertwin.workload.machine_size import job_sizes
from clustertwin.workload.policies import Policy, find_policy
from clustertwin.workload.policies.patience import with_patience
from clustertwin.workload.rl.policy_choice import PolicyChoice, choose_policy
from clustertwin.workload.rl.policy_training import TrainSettings, train
from clustertwin.workload.rl.source_study import HEURISTICS
from clustertwin.workload.rl.training_sequences import OtherMachine, TrainingData
from clustertwin.workload.simulator.admission import admit
from clustertwin.workload.simulator.machine_state import Records
from clustertwin.workload.simulator.scheduling_metrics import bounded_slowdown
from clustertwin.workload.simulator.simulate_log import SchedulingRules, schedule_records

#: file, unit, processors of the machine
LOGS = {
    "KTH-SP2": ("traces/easy-schedules/KTH-SP2.easy.swf.gz", "cpus", 100),
    "SDSC-SP2": ("traces/easy-schedules/SDSC-SP2.easy.swf.gz", "cpus", 128),
    "Theta": ("traces/theta/theta-2023.csv", "nodes", 4_392),
    "ThetaGPU": ("traces/theta/thetagpu-2023.csv", "nodes", 24),
}


def load(data: Path, name: str) -> OtherMachine:
    path, unit, procs = LOGS[name]
    jobs = read(data / path, lenient=True)
    fits = job_sizes(jobs, unit) <= procs
    return OtherMachine(admit(jobs.take(fits), procs, unit=unit).records, procs)


def at_load(log: OtherMachine, load: float) -> OtherMachine:
    """The jobs in less time."""
    records = log.records.copy()
    records["submit_s"] /= load
    return OtherMachine(records, log.procs)


def measure(policy: Policy, log: OtherMachine) -> dict[str, float]:
    """The whole log, in one simulation."""
    records: Records = log.records.copy()
    schedule_records(records, policy, SchedulingRules(log.procs, backfill="easy"))
    wait_s = records["start_s"] - records["submit_s"]
    slowdown = bounded_slowdown(wait_s, records["run_s"], 10.0)
    return {"slowdown": float(slowdown.mean()), "wait_s": float(wait_s.mean()), "worst_wait_s": float(wait_s.max())}


def chosen_row(choice: PolicyChoice) -> dict[str, float]:
    """The second half under the policy that the first half chose, and under the best heuristic of the second half."""
    chosen, best = choice.rest[choice.chosen], min(trial.slowdown for trial in choice.rest[:-1])
    return {
        "candidate": choice.chosen,
        "slowdown_of_second_half": chosen.slowdown,
        "to_best_heuristic": chosen.slowdown / best,
        "worst_wait_to_fcfs": chosen.worst_wait_ratio,
    }


def print_choice(choice: PolicyChoice) -> None:
    for first, rest in zip(choice.first, choice.rest, strict=True):
        mark = "*" if first == choice.first[choice.chosen] else " "
        print(
            f"  {mark} {first.policy:<44} first half {first.slowdown:8.2f}, worst wait {first.worst_wait_ratio:5.2f};"
            f" second half {rest.slowdown:8.2f}, worst wait {rest.worst_wait_ratio:5.2f} of FCFS"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("travel"))
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--sequences", type=int, default=9)
    parser.add_argument(
        "--length", type=int, default=4096, help="jobs in a training sequence; starvation needs long ones"
    )
    parser.add_argument("--patience", type=float, default=1.0)
    parser.add_argument("--load", type=float, action="append", help="train at this multiple of each log's load; repeat")
    parser.add_argument("--left-out", choices=list(LOGS), action="append")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    logs = {name: load(options.data, name) for name in LOGS}
    settings = TrainSettings(
        ppo_rounds=0, evolve_rounds=options.rounds, evolve_length=options.length, start="order"
    ).with_sequences(options.sequences)
    results: dict[str, dict[str, dict[str, float]]] = {}
    for name in options.left_out or logs:
        trained_on = [log for other, log in logs.items() if other != name]
        first, *others = [at_load(log, load) for load in options.load or [1.0] for log in trained_on]
        path = options.out / f"without-{name}.safetensors"
        rules = SchedulingRules(first.procs, backfill="easy")
        trained = train(TrainingData(first.records, others=others), rules, settings, path)
        policy = find_policy(str(path))
        bound_s = options.patience * float(logs[name].records["request_s"].max())
        rows = {heuristic: measure(find_policy(heuristic), logs[name]) for heuristic in HEURISTICS}
        rows["learned"] = measure(policy, logs[name])
        rows[f"learned, patience {bound_s / 3600:.0f} h"] = measure(with_patience(policy, bound_s), logs[name])
        results[name] = rows
        candidates = [find_policy(heuristic) for heuristic in HEURISTICS]
        candidates.append(with_patience(policy, bound_s))
        choice = choose_policy(candidates, logs[name].records, SchedulingRules(logs[name].procs, backfill="easy"))
        rows["chosen by the first half"] = chosen_row(choice)
        if options.json:
            continue
        outside = policy.trained.outside(logs[name].records, logs[name].procs) if policy.trained else []
        print(f"\n{name} left out ({trained.seconds:.0f} s of training, {trained.validation_ratio:.2f} of SJF there)")
        print("\n".join(f"  outside: {phrase}" for phrase in outside))
        best = min(row["slowdown"] for heuristic, row in rows.items() if heuristic in HEURISTICS)
        print_choice(choice)
        for label, row in rows.items():
            if "slowdown" not in row:
                continue
            worst = row["worst_wait_s"] / rows["fcfs"]["worst_wait_s"]
            print(
                f"  {label:<24} slowdown {row['slowdown']:8.2f} ({row['slowdown'] / best:5.2f} of the best heuristic)"
                f"  wait {row['wait_s']:8.0f} s  worst {worst:5.2f} of FCFS"
            )
    if options.json:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
