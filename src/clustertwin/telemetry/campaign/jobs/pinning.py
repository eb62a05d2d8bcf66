"""Pin a process: a list of CPUs, or a map of Slurm nodes to CPUs in the environment -> CPU affinity."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from clustertwin.core.errors import SettingsError

#: Set by the batch script: `n1=0,1 n2=2,3`, the CPUs of this host for each Slurm node.
NODE_CPUS = "CLUSTERTWIN_NODE_CPUS"


def cpu_list(text: str) -> tuple[int, ...]:
    """CPU numbers from the kernel's list notation.

    >>> cpu_list("0,1,4-6")
    (0, 1, 4, 5, 6)
    """
    try:
        spans = [part.partition("-") for part in text.split(",")]
        return tuple(cpu for first, _, last in spans for cpu in range(int(first), int(last or first) + 1))
    except ValueError:
        raise SettingsError(f"{text!r} is not a list of CPUs such as 0,1,4-6") from None


def parse_node_cpus(text: str) -> dict[str, tuple[int, ...]]:
    """The CPUs of each node, from text such as `n1=0,1 n2=2-3`. Two nodes must not share a CPU.

    >>> parse_node_cpus("n1=0,1 n2=2-3")
    {'n1': (0, 1), 'n2': (2, 3)}
    """
    nodes: dict[str, tuple[int, ...]] = {}
    for word in text.split():
        name, equals, cpus = word.partition("=")
        if not equals or not name:
            raise SettingsError(f"{word!r} is not of the form NODE=CPUS, such as n1=0,1")
        nodes[name] = cpu_list(cpus)
    all_cpus = [cpu for cpus in nodes.values() for cpu in cpus]
    if len(set(all_cpus)) != len(all_cpus):
        raise SettingsError(f"two nodes share a CPU in {text!r}; every CPU must belong to one node")
    return nodes


def format_node_cpus(nodes: Mapping[str, tuple[int, ...]]) -> str:
    return " ".join(f"{name}={','.join(map(str, cpus))}" for name, cpus in nodes.items())


def node_name() -> str:
    """The name of the Slurm node, or of this host outside Slurm."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]


def this_nodes_cpus(default: tuple[int, ...]) -> tuple[int, ...]:
    """The CPUs of this process's node if the environment maps nodes to CPUs; otherwise the default."""
    return parse_node_cpus(os.environ.get(NODE_CPUS, "")).get(node_name(), default)


def pin(cpus: tuple[int, ...]) -> None:
    """Pin this process and its future children to these CPUs."""
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        chosen, usable = (",".join(map(str, sorted(each))) for each in (cpus, os.sched_getaffinity(0)))
        raise SettingsError(f"cannot use CPUs {chosen}: {error.strerror}; usable CPUs: {usable}") from error
