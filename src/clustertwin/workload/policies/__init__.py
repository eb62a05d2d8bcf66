"""Scheduling policies: a table of name -> score function, one file each. Packages add policies by entry point."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from clustertwin.core.errors import SettingsError
from clustertwin.core.extras import load
from clustertwin.workload.policies.policy_contract import Now, Policy, Request

#: name -> (import string of a score function or a Policy, whether the score changes while a job waits)
POLICIES: dict[str, tuple[str, bool]] = {
    "fcfs": ("clustertwin.workload.policies.fcfs:score", False),
    "sjf": ("clustertwin.workload.policies.sjf:score", False),
    "smallest": ("clustertwin.workload.policies.smallest:score", False),
    "f1": ("clustertwin.workload.policies.f1:score", False),
    "wfp3": ("clustertwin.workload.policies.wfp3:score", True),
    "unicep": ("clustertwin.workload.policies.unicep:score", True),
    "multifactor": ("clustertwin.workload.policies.multifactor:default", True),
}

#: Installed packages add policies under this group, `name = "package.module:score"`.
ENTRY_POINTS = "clustertwin.policies"


def policy_names() -> list[str]:
    """The names of all policies: the built-in ones, then those of installed packages."""
    return [*POLICIES, *sorted(point.name for point in entry_points(group=ENTRY_POINTS))]


def find_policy(policy: str | Policy | Callable[..., Any]) -> Policy:
    """The policy with this name, from this .safetensors file, or with this score function."""
    if isinstance(policy, Policy):
        return policy
    if callable(policy):
        return Policy(getattr(policy, "__name__", "score"), policy)
    if policy.endswith(".safetensors"):
        return load("clustertwin.workload.policies.learned:read_learned")(Path(policy))
    if policy in POLICIES:
        target, varies = POLICIES[policy]
        return _as_policy(policy, load(target), varies)
    for point in entry_points(group=ENTRY_POINTS, name=policy):
        return _as_policy(policy, point.load())
    raise SettingsError(f"unknown policy {policy!r}; use {', '.join(policy_names())}, or FILE.safetensors")


def _as_policy(name: str, loaded: Any, varies: bool = True) -> Policy:
    return loaded if isinstance(loaded, Policy) else Policy(name, loaded, varies)


__all__ = ["POLICIES", "Now", "Policy", "Request", "find_policy", "policy_names"]
