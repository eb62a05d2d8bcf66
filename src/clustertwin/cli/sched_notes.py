"""Notes of `twin sched` on standard error: what takes long, and remarks on jobs and policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clustertwin.cli.output import err
from clustertwin.core.formatting import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clustertwin.workload.policies import Policy

#: While a log is simulated, and while a Slurm site is.
SIMULATING = "simulating (the first run compiles the simulator, about ten seconds)"
SIMULATING_SITE = "simulating (the first run compiles for a minute or two)"


def print_remarks(remarks: Mapping[str, int]) -> None:
    """Remark -> number of jobs; 0 if it is not about single jobs."""
    for remark, count in remarks.items():
        err.print(f"{counted(count, 'job')}: {remark}" if count else remark)


def print_untrained(policies: Sequence[Policy], records: NDArray[Any], procs: int) -> None:
    """How the log and the machine differ from what learned policies were trained for."""
    for policy in policies:
        for phrase in policy.trained.outside(records, procs) if policy.trained else ():
            err.print(f"policy {policy.name!r} was not trained for this log: {phrase}")
