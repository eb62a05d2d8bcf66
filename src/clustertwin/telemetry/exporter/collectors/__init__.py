"""The table of collectors: one kernel subject each -> the text of its metric families.

A collector that feeds a node channel follows from the table of channels: the row names `network`, and the file
`network.py` in this folder has the class `NetworkCollector`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

from clustertwin.core.channels import NODE


class Collector(Protocol):
    """Reads one subject below the root of a node's file system."""

    reads: str  # its subject and its files, for --help

    def __init__(self, rootfs: str) -> None: ...

    def collect(self, faults: list[str]) -> bytes:
        """The families, read now. A collector that can read only a part returns it and appends to `faults`."""
        ...


#: The collectors of node channels, in the order of the channels. That of threads keeps its own samples for the ring.
CHANNEL_COLLECTORS = tuple(name for name in dict.fromkeys(c.collector for c in NODE.channels) if name != "cpu")

#: Name -> import string, in the order of the page. Each has the flags --collector.NAME and --no-collector.NAME.
COLLECTORS: dict[str, str] = {
    "cpu": f"{__name__}.cpu:CpuCollector",
    **{name: f"{__name__}.{name}:{name.title()}Collector" for name in CHANNEL_COLLECTORS},
    "jobs": "clustertwin.telemetry.exporter.jobs.cgroup_jobs:JobsCollector",
}


def collector_class(name: str) -> type[Collector]:
    module, _, class_name = COLLECTORS[name].partition(":")
    collector: type[Collector] = getattr(import_module(module), class_name)
    return collector
