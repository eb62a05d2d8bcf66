"""Whether a rule allows an action now: a finding, a job's facts, the rules -> a rule, or the reason against it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clustertwin.service.act.policy import ActionPolicy, Rule
from clustertwin.service.act.slurm_commands import JobFacts
from clustertwin.telemetry.diagnosis.evidence import JobFinding


@dataclass(frozen=True, slots=True)
class Decision:
    """The first rule that allows an action, or why none does."""

    rule: Rule | None
    reason: str


def decide(
    policy: ActionPolicy,
    finding: JobFinding,
    lasts_s: float,
    facts: JobFacts,
    used_today: Mapping[str, int],
    suspended: Mapping[str, str],
) -> Decision:
    """Ask the rules in their order."""
    reason = "no rule has this cause" if policy.rules else "the policy has no rules"
    for rule in policy.rules:
        if finding.kind not in rule.causes:
            continue
        against = _against(rule, finding, lasts_s, facts, used_today.get(rule.name, 0))
        if rule.name in suspended:
            against = f"the rule is suspended: {suspended[rule.name]}"
        if not against:
            return Decision(rule, f"rule {rule.name!r} allows it")
        reason = f"rule {rule.name!r}: {against}"
    return Decision(None, reason)


def _against(rule: Rule, finding: JobFinding, lasts_s: float, facts: JobFacts, used: int) -> str:
    if facts.state != "RUNNING" and rule.action != "hold":
        return f"the job is {facts.state}"
    if facts.het_job and rule.action not in ("notify", "drain", "reserve"):
        return "the job is a part of a heterogeneous job, which ends as a whole"
    if finding.sure < rule.sure:
        return f"the certainty is {finding.sure:.2f}; the rule needs {rule.sure:.2f}"
    if lasts_s < rule.for_s:
        return f"the finding has lasted for {lasts_s:.0f} s, and {rule.for_s:.0f} s are needed"
    if rule.partitions and facts.partition not in rule.partitions:
        return f"partition {facts.partition} is not in the rule"
    if rule.accounts and facts.account not in rule.accounts:
        return f"account {facts.account or 'none'} is not in the rule"
    if used >= rule.most_per_day:
        return f"the rule has acted {used} times today, which is its limit"
    return ""
