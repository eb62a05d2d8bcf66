"""Which CPUs a job's process may use: a list, or a map of Slurm nodes to CPUs in the environment -> affinity."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from clustertwin.core.errors import SettingsError

#: Set by the batch script: `n1=0,1 n2=2,3`, the CPUs of this host that each Slurm node stands for.
NODE_CPUS = "CLUSTERTWIN_NODE_CPUS"


def cpu_list(text: str) -> tuple[int, ...]:
    """The kernel's notation -> CPU numbers.

    >>> cpu_list("0,1,4-6")
    (0, 1, 4, 5, 6)
    """
    try:
        spans = [part.partition("-") for part in text.split(",")]
        return tuple(cpu for first, _, last in spans for cpu in range(int(first), int(last or first) + 1))
    except ValueError:
        raise SettingsError(f"{text!r} is no list of CPUs such as 0,1,4-6") from None


def parse_node_cpus(text: str) -> dict[str, tuple[int, ...]]:
    """`n1=0,1 n2=2-3` -> the CPUs of each node, which no two nodes share.

    >>> parse_node_cpus("n1=0,1 n2=2-3")
    {'n1': (0, 1), 'n2': (2, 3)}
    """
    nodes: dict[str, tuple[int, ...]] = {}
    for word in text.split():
        name, equals, cpus = word.partition("=")
        if not equals or not name:
            raise SettingsError(f"{word!r} names no node and CPUs such as n1=0,1")
        nodes[name] = cpu_list(cpus)
    everything = [cpu for cpus in nodes.values() for cpu in cpus]
    if len(set(everything)) != len(everything):
        raise SettingsError(f"two nodes share a CPU in {text!r}: their traces could not be told apart")
    return nodes


def format_node_cpus(nodes: Mapping[str, tuple[int, ...]]) -> str:
    return " ".join(f"{name}={','.join(map(str, cpus))}" for name, cpus in nodes.items())


def node_name() -> str:
    """The node as Slurm calls it, or this host."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]


def this_nodes_cpus(default: tuple[int, ...]) -> tuple[int, ...]:
    """The CPUs of the node a process runs on, where the environment maps nodes to CPUs; else the default."""
    return parse_node_cpus(os.environ.get(NODE_CPUS, "")).get(node_name(), default)


def pin(cpus: tuple[int, ...]) -> None:
    """This process, and what it starts, to these CPUs."""
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as refused:
        usable = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        raise SettingsError(f"CPUs {cpus} cannot be used here ({refused.strerror}); {usable} can") from refused
