"""Choose a policy by a log's own past: candidates + the first part of a log -> the best that starves no job.

A learned policy may not fit a log that it was not trained on, and the best heuristic differs from log to log. The first
part of the log tells both: each candidate schedules it, and the lowest slowdown wins. Candidates whose longest wait
exceeds that of FCFS by too much are left out. The rest of the log judges the choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clustertwin.core.errors import SettingsError
from clustertwin.workload.policies import Policy, find_policy
from clustertwin.workload.simulator.machine_state import Records
from clustertwin.workload.simulator.scheduling_metrics import bounded_slowdown
from clustertwin.workload.simulator.simulate_log import SchedulingRules, schedule_records

#: The longest wait that a chosen policy may cause, relative to the longest one of FCFS.
MOST_WORST_WAIT = 3.0
#: With fewer jobs in a part, single jobs decide.
LEAST_JOBS = 100


@dataclass(frozen=True, slots=True)
class PolicyTrial:
    """What one policy does to one part of a log."""

    policy: str
    slowdown: float
    mean_wait_s: float
    worst_wait_s: float
    worst_wait_ratio: float  # relative to FCFS


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """The trials of all candidates on both parts, and the candidate that the first part chose."""

    first: tuple[PolicyTrial, ...]
    rest: tuple[PolicyTrial, ...]
    chosen: int

    @property
    def ratio_to_best(self) -> float:
        """Slowdown of the chosen policy on the rest, relative to the best candidate there, which nobody knew."""
        return self.rest[self.chosen].slowdown / min(trial.slowdown for trial in self.rest)


def choose_policy(
    candidates: Sequence[Policy], records: Records, rules: SchedulingRules, first_part: float = 0.5
) -> PolicyChoice:
    """Choose on the first part of the records, judge on the rest. Each part begins on an idle machine."""
    cut = round(first_part * len(records))
    if min(cut, len(records) - cut) < LEAST_JOBS:
        raise SettingsError(f"a log of {len(records):,} jobs is too short: each part needs {LEAST_JOBS}")
    first = try_policies(candidates, records[:cut], rules)
    allowed = [k for k, trial in enumerate(first) if trial.worst_wait_ratio <= MOST_WORST_WAIT]
    if not allowed:
        raise SettingsError(f"every policy makes a job wait more than {MOST_WORST_WAIT:g} times as long as FCFS does")
    chosen = min(allowed, key=lambda k: first[k].slowdown)
    return PolicyChoice(first, try_policies(candidates, records[cut:], rules), chosen)


def try_policies(policies: Sequence[Policy], records: Records, rules: SchedulingRules) -> tuple[PolicyTrial, ...]:
    """Schedule the same jobs with each policy."""
    fcfs_s = _waits(find_policy("fcfs"), records, rules)[1]
    trials = []
    for policy in policies:
        slowdown, worst_s, mean_s = _waits(policy, records, rules)
        ratio = worst_s / fcfs_s if fcfs_s > 0 else 1.0 if worst_s == 0 else float("inf")
        trials.append(PolicyTrial(policy.name, slowdown, mean_s, worst_s, ratio))
    return tuple(trials)


def _waits(policy: Policy, records: Records, rules: SchedulingRules) -> tuple[float, float, float]:
    """Mean bounded slowdown, longest and mean wait."""
    scheduled = records.copy()
    schedule_records(scheduled, policy, rules)
    wait_s = scheduled["start_s"] - scheduled["submit_s"]
    slowdown = bounded_slowdown(wait_s, scheduled["run_s"], rules.bound_s)
    return float(slowdown.mean()), float(wait_s.max()), float(wait_s.mean())
