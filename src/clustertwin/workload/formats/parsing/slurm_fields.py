"""Field values of Slurm, in its text report and in its database: durations, memory, TRES lists, states -> numbers."""

from __future__ import annotations

import re

from clustertwin.workload.jobs import Status

#: Slurm job state -> how the job ended. Waiting and running jobs are UNKNOWN.
STATES = {
    "COMPLETED": Status.COMPLETED, "FAILED": Status.FAILED, "NODE_FAIL": Status.FAILED, "BOOT_FAIL": Status.FAILED,
    "OUT_OF_MEMORY": Status.FAILED, "LAUNCH_FAILED": Status.FAILED, "RECONFIG_FAIL": Status.FAILED,
    "CANCELLED": Status.CANCELLED, "TIMEOUT": Status.CANCELLED, "PREEMPTED": Status.CANCELLED,
    "DEADLINE": Status.CANCELLED, "REVOKED": Status.CANCELLED, "REQUEUED": Status.CANCELLED,
    "PENDING": Status.UNKNOWN, "RUNNING": Status.UNKNOWN, "SUSPENDED": Status.UNKNOWN, "RESIZING": Status.UNKNOWN,
    "CONFIGURING": Status.UNKNOWN, "COMPLETING": Status.UNKNOWN, "STOPPED": Status.UNKNOWN,
    "REQUEUE_HOLD": Status.UNKNOWN, "SPECIAL_EXIT": Status.FAILED, "STAGE_OUT": Status.UNKNOWN,
}  # fmt: skip
#: Job states by number, in the order of Slurm's `enum job_states`.
STATE_NUMBERS = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL",
                 "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY")  # fmt: skip
NEVER = ("", "Unknown", "None", "N/A")
#: squeue prints `NOT_SET` for a limit that is not known yet.
NO_LIMIT = (*NEVER, "UNLIMITED", "Partition_Limit", "NOT_SET", "INVALID")

_DURATION = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)$")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)i?B?([nc]?)$")


def parse_state(word: str) -> float:
    """`CANCELLED by 1000` -> a `Status`."""
    state = word.split()[0].rstrip("+") if word.split() else ""
    if state not in STATES:
        raise ValueError("not a Slurm job state")
    return float(STATES[state])


def parse_duration(word: str) -> float:
    """`1-02:03:04`, `02:03:04`, `03:04` -> seconds; -1 if unlimited or unknown.

    >>> parse_duration("1-02:03:04")
    93784.0
    """
    if word in NO_LIMIT:
        return -1.0
    match = _DURATION.match(word)
    if not match:
        raise ValueError("not a duration [days-]hours:minutes:seconds")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def parse_memory(word: str, nodes: float = 1, cpus: float = 1) -> float:
    """`4000M`, `16G`, `2Gc` (per cpu), `4Gn` (per node) -> bytes of the job. A number without a unit is in MB."""
    if word in ("", "0", "?", "0n", "0c"):
        return -1.0
    match = _MEMORY.match(word)
    if not match:
        raise ValueError("not an amount of memory")
    amount = float(match[1]) * 1024.0 ** " KMGTP".index(match[2] or "M")
    return amount * {"": 1.0, "n": nodes, "c": cpus}[match[3]]


def parse_tres(word: str) -> dict[str, str]:
    """A TRES list -> its entries.

    >>> parse_tres("cpu=8,gres/gpu=2,mem=16G,node=1")
    {'cpu': '8', 'gres/gpu': '2', 'mem': '16G', 'node': '1'}
    """
    pairs = (part.partition("=") for part in word.split(",") if part)
    return {name: value for name, _, value in pairs}
