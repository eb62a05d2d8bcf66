"""Run `twin sched choose`: a log and policies -> the policy that its first part chooses, judged on the rest."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from clustertwin.cli.output import err, print_table
from clustertwin.cli.sched_notes import print_remarks, print_untrained
from clustertwin.cli.sched_options import ChooseOptions
from clustertwin.workload.formats import read
from clustertwin.workload.machine_size import stated_machine_size
from clustertwin.workload.policies import find_policy
from clustertwin.workload.policies.patience import with_patience
from clustertwin.workload.rl.policy_choice import PolicyChoice, choose_policy
from clustertwin.workload.simulator import SchedulingRules
from clustertwin.workload.simulator.admission import admit


def run_choice(options: ChooseOptions) -> PolicyChoice:
    """Try every policy on both parts of the log, learned ones with patience."""
    jobs = read(options.trace, lenient=options.lenient)
    procs = options.procs or stated_machine_size(jobs, options.unit)
    admission = admit(jobs, procs, unit=options.unit)
    records = admission.records
    print_remarks({remark: len(ids) for remark, ids in admission.remarks.items()})
    bound_s = options.patience_h * 3600
    policies = [find_policy(name) for name in options.policy]
    print_untrained(policies, records, procs)
    longest_s = float(records["request_s"].max())
    candidates = [
        with_patience(policy, bound_s or longest_s) if bound_s or policy.weights is not None else policy
        for policy in policies
    ]
    with err.status("simulating both parts with every policy"):
        return choose_policy(candidates, records, SchedulingRules(procs, backfill=options.backfill), options.first_part)


def as_document(options: ChooseOptions, choice: PolicyChoice) -> dict[str, Any]:
    """The JSON document of `choose`."""
    return {
        "trace": str(options.trace),
        "first_part": options.first_part,
        "chosen": options.policy[choice.chosen],
        "ratio_to_best": choice.ratio_to_best,
        "policies": [
            {"policy": name, "first": asdict(first), "rest": asdict(rest)}
            for name, first, rest in zip(options.policy, choice.first, choice.rest, strict=True)
        ],
    }


def print_choice(options: ChooseOptions, choice: PolicyChoice) -> None:
    """Both parts as a table; an arrow marks the choice."""
    print_table(
        f"{options.trace.name}: chosen on the first {options.first_part:.0%} of the jobs, judged on the rest",
        ["", "policy", "slowdown", "longest wait of FCFS's", "slowdown, rest", "longest wait, rest"],
        [
            ["→" if k == choice.chosen else "", first.policy, first.slowdown, first.worst_wait_ratio, rest.slowdown,
             rest.worst_wait_ratio]
            for k, (first, rest) in enumerate(zip(choice.first, choice.rest, strict=True))
        ],
    )  # fmt: skip
    err.print(f"on the rest, the chosen policy has {choice.ratio_to_best:.2f} of the best policy's slowdown")
