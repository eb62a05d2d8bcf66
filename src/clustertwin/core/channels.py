"""The table of channels: what is measured each second, for whom, and from which exported series.

Every value lies in [0, 1] by its meaning, so nothing is ever scaled by data. The channels of a simplex group sum to
one; a channel without a group is bounded on its own. A channel belongs to a hardware thread or to a whole node.

To add a node channel, add a row to `NODE` and, if no collector exposes its series yet, a file to
`telemetry/exporter/collectors`. Exporter, sources, recording, pages and explanations read this table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from clustertwin.core.errors import SettingsError

Scope = Literal["thread", "node"]
Rule = Literal["complement", "rate", "share"]

_SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?")
_MATCHER = re.compile(r'([a-zA-Z_]\w*)="([^"\\]*)"(?:,|$)')


class Operands(NamedTuple):
    """The series of both operands, as PromQL selectors. The series that match are added up."""

    first: tuple[str, ...]
    second: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Derivation:
    """How a node channel follows from exported series.

    rule          value of a second
    complement    1 - first / second, of gauges
    rate          increase of first per second, of a counter of seconds
    share         increase of first / increase of second, of counters; 0 where neither increased
    """

    rule: Rule
    series: Mapping[str, Operands]  # by exporter: "twin" is ours, "node" is node_exporter


@dataclass(frozen=True, slots=True)
class Channel:
    """One row of the table. Only name and group make a channel what it is; the rest describes it."""

    name: str
    group: str = ""  # the simplex it belongs to; empty: bounded on its own
    scope: Scope = field(default="thread", compare=False)
    label: str = field(default="", compare=False)  # for people, in the middle of a sentence
    help: str = field(default="", compare=False)
    collector: str = field(default="", compare=False)  # the exporter's collector of a node channel
    derivation: Derivation | None = field(default=None, compare=False)  # of a node channel


@dataclass(frozen=True, slots=True)
class Schema:
    """An ordered set of channels."""

    channels: tuple[Channel, ...]

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.channels):
            raise SettingsError(f"channel names must differ: {', '.join(self.names)}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(channel.name for channel in self.channels)

    def index(self, name: str) -> int:
        if name not in self.names:
            raise SettingsError(f"no channel {name!r}; the channels are {', '.join(self.names)}")
        return self.names.index(name)

    @property
    def simplexes(self) -> dict[str, tuple[int, ...]]:
        """Group name -> the indices of its channels, which sum to one."""
        groups: dict[str, list[int]] = {}
        for i, channel in enumerate(self.channels):
            if channel.group:
                groups.setdefault(channel.group, []).append(i)
        return {name: tuple(indices) for name, indices in groups.items()}

    @property
    def bounded(self) -> tuple[int, ...]:
        """Indices of the channels that belong to no group."""
        return tuple(i for i, channel in enumerate(self.channels) if not channel.group)

    def __len__(self) -> int:
        return len(self.channels)

    def __add__(self, other: Schema) -> Schema:
        return Schema(self.channels + other.channels)

    def of_scope(self, scope: Scope) -> Schema:
        """The channels of hardware threads, or those of nodes."""
        return Schema(tuple(channel for channel in self.channels if channel.scope == scope))

    def to_json(self) -> list[dict[str, str]]:
        return [{"name": channel.name, "group": channel.group} for channel in self.channels]

    @classmethod
    def from_json(cls, rows: list[dict[str, str]]) -> Schema:
        """The schema of a file. A channel that has no row in this version keeps its name and its group."""
        return cls(tuple(_known(row["name"], row.get("group", "")) for row in rows))


def label_of(name: str) -> str:
    """A channel's name as people say it.

    >>> label_of("io_pressure"), label_of("other"), label_of("of_a_newer_version")
    ('I/O pressure', 'idle', 'of_a_newer_version')
    """
    return next((channel.label for channel in (*CPU.channels, *NODE.channels) if channel.name == name), name)


def parse_selector(text: str) -> tuple[str, dict[str, str]]:
    """A PromQL selector with equalities only -> the metric's name and the labels it must have.

    >>> parse_selector('twin_pressure_seconds_total{resource="io",share="some"}')
    ('twin_pressure_seconds_total', {'resource': 'io', 'share': 'some'})
    """
    match = _SELECTOR.fullmatch(text)
    labels = match[2] or "" if match else ""
    if match is None or _MATCHER.sub("", labels):
        raise SettingsError(f'{text!r} is not a selector like metric{{label="value"}}')
    return match[1], dict(_MATCHER.findall(labels))


def _known(name: str, group: str) -> Channel:
    channel = Channel(name, group, label=name)
    return next((row for row in (*CPU.channels, *NODE.channels) if row == channel), channel)


def _pressure(resource: str, label: str, waiting: str) -> Channel:
    """A row of the kernel's pressure stall information (PSI).

    The kernel counts `some` (at least one task waits) and `full` (all tasks that are not idle wait at once). A node
    channel is `some`. For CPU, `full` is not defined for a whole node and reads 0. For memory and I/O, on a node with
    several jobs, `full` stays near 0 while one of the jobs does nothing but wait.
    """
    return Channel(
        f"{resource}_pressure",
        scope="node",
        label=label,
        help=f"Part of the second in which at least one task of the node waited for {waiting}.",
        collector="pressure",
        derivation=Derivation(
            "rate",
            {
                "twin": Operands((f'twin_pressure_seconds_total{{resource="{resource}",share="some"}}',)),
                "node": Operands((f"node_pressure_{resource}_waiting_seconds_total",)),
            },
        ),
    )


#: What each hardware thread did in a second.
CPU = Schema(
    (
        Channel("user", "cpu", label="user", help="Programs, niced ones and guests included."),
        Channel("system", "cpu", label="system", help="The kernel, on behalf of programs."),
        Channel("iowait", "cpu", label="iowait", help="Idle while a task of this thread waits for a disk."),
        Channel("other", "cpu", label="idle", help="Idle, interrupts, and time taken by the hypervisor."),
    )
)

#: What each node did in a second.
NODE = Schema(
    (
        Channel(
            "memory_used",
            scope="node",
            label="memory in use",
            help="Memory that a new program could not have without swapping, as a part of all memory.",
            collector="memory",
            derivation=Derivation(
                "complement",
                {
                    "twin": Operands(("twin_memory_available_bytes",), ("twin_memory_total_bytes",)),
                    "node": Operands(("node_memory_MemAvailable_bytes",), ("node_memory_MemTotal_bytes",)),
                },
            ),
        ),
        _pressure("cpu", "CPU pressure", "a CPU"),
        _pressure("memory", "memory pressure", "memory"),
        _pressure("io", "I/O pressure", "I/O"),
    )
)
