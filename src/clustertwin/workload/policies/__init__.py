"""Scheduling policies: a visible table of name -> score, one file each; plug-ins add to it by entry point."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from clustertwin.core.errors import SettingsError
from clustertwin.core.extras import load
from clustertwin.workload.policies.request import Now, Policy, Request

#: name -> (import string of a score or a Policy, whether the score changes while a job waits)
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


def names() -> list[str]:
    """Every policy there is, ours first."""
    return [*POLICIES, *sorted(point.name for point in entry_points(group=ENTRY_POINTS))]


def policy(which: str | Policy | Callable[..., Any]) -> Policy:
    """The policy of that name, behind that score function, or in that file of a trained one."""
    if isinstance(which, Policy):
        return which
    if callable(which):
        return Policy(getattr(which, "__name__", "score"), which)
    if which.endswith(".safetensors"):
        return load("clustertwin.workload.policies.learned:read_learned")(Path(which))
    if which in POLICIES:
        target, varies = POLICIES[which]
        found = load(target)
        return found if isinstance(found, Policy) else Policy(which, found, varies)
    for point in entry_points(group=ENTRY_POINTS, name=which):
        found = point.load()
        return found if isinstance(found, Policy) else Policy(which, found)
    raise SettingsError(f"no policy {which!r}; there are {', '.join(names())}, or FILE.safetensors")


__all__ = ["POLICIES", "Now", "Policy", "Request", "names", "policy"]
