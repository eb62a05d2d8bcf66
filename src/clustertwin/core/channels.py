"""The table of channels: what is measured each second, for whom, and from which exported series.

Every value lies in [0, 1] by its meaning, so nothing is ever scaled by data. The channels of a simplex group sum to
one; a channel without a group is bounded on its own. A channel belongs to a hardware thread, to a whole node, or to a
job on a node (its cgroup).

To add a node channel, add a row to `NODE` and, if no collector exposes its series yet, a file to
`telemetry/exporter/collectors`. To add a channel of jobs, add a row to `JOB` and, if needed, a file of the job's cgroup
to `telemetry/exporter/jobs/cgroup_files.py`. Exporter, sources, recording, pages and explanations read these tables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from clustertwin.core.errors import SettingsError

Scope = Literal["thread", "node", "job"]
Rule = Literal["complement", "fraction", "rate", "share", "capped", "saturating", "queue", "stolen"]

_SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?")
_MATCHER = re.compile(r'([a-zA-Z_]\w*)(!?=)"([^"\\]*)"(?:,|$)')


class Operands(NamedTuple):
    """The series of both operands, as PromQL selectors. The series that match are added up."""

    first: tuple[str, ...]
    second: tuple[str, ...] = ()


#: A schema has about a dozen channels. A file that names more than this is not one of ours.
MOST_CHANNELS = 256


@dataclass(frozen=True, slots=True)
class Derivation:
    """How a channel of a node or a job follows from exported series.

    rule          value of a second
    complement    1 - first / second, of gauges
    fraction      first / second, of gauges, at most 1
    rate          increase of first per second, of a counter of seconds
    share         increase of first / increase of second, of counters; 0 where neither increased
    capped        increase of first per second, at most 1, of counters that can run faster than the clock
    saturating    r / (r + half), where r is the increase of first per second: 0.5 at a rate of `half`, never 1
    queue         first / (first + second), of gauges: 0.5 where first equals second
    stolen        what the hypervisor took of the time of all hardware threads, from the counters of the threads

    In `capped` and `saturating`, a second operand is a gauge of hardware threads that the rate is divided by.
    """

    rule: Rule
    series: Mapping[str, Operands]  # by exporter: "twin" is ours, "node" is node_exporter
    half: float = 0.0  # of `saturating`, in the unit of first per second
    per_thread: bool = False  # of a node: the second operand is the number of its hardware threads


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
        """The channels of hardware threads, those of nodes, or those of jobs."""
        return Schema(tuple(channel for channel in self.channels if channel.scope == scope))

    def to_json(self) -> list[dict[str, str]]:
        return [{"name": channel.name, "group": channel.group} for channel in self.channels]

    @classmethod
    def from_json(cls, rows: list[dict[str, str]]) -> Schema:
        """The schema of a file. A channel that has no row in this version keeps its name and its group.

        ValueError, TypeError, KeyError or AttributeError for anything else; the caller knows the file.
        """
        channels = tuple(_known(row["name"], row.get("group", "")) for row in rows[:MOST_CHANNELS])
        if len(rows) > len(channels) or len({channel.name for channel in channels}) < len(channels):
            raise ValueError(f"more than {MOST_CHANNELS} channels, or one of them twice")
        if not all(type(text) is str for channel in channels for text in (channel.name, channel.group)):
            raise TypeError("the name or the group of a channel is not a text")
        return cls(channels)


def label_of(name: str) -> str:
    """A channel's name as people say it.

    >>> label_of("io_pressure"), label_of("other"), label_of("of_a_newer_version")
    ('I/O pressure', 'idle', 'of_a_newer_version')
    """
    return next((channel.label for channel in _rows() if channel.name == name), name)


class Selector(NamedTuple):
    """A PromQL selector: the metric's name, the labels it must have, and the values that labels must not have."""

    metric: str
    equal: dict[str, str]
    unequal: dict[str, str]

    def selects(self, name: str, labels: Mapping[str, str]) -> bool:
        return (
            name == self.metric
            and self.equal.items() <= labels.items()
            and all(labels.get(label, "") != value for label, value in self.unequal.items())
        )


def parse_selector(text: str) -> Selector:
    """A PromQL selector with = and != only.

    >>> parse_selector('twin_pressure_seconds_total{resource="io",share!="full"}')
    Selector(metric='twin_pressure_seconds_total', equal={'resource': 'io'}, unequal={'share': 'full'})
    """
    match = _SELECTOR.fullmatch(text)
    labels = match[2] or "" if match else ""
    if match is None or _MATCHER.sub("", labels):
        raise SettingsError(f'{text!r} is not a selector like metric{{label="value"}}')
    matchers = _MATCHER.findall(labels)
    equal, unequal = ({label: value for label, sign, value in matchers if sign == s} for s in ("=", "!="))
    return Selector(match[1], equal, unequal)


def _rows() -> tuple[Channel, ...]:
    return (*CPU.channels, *NODE.channels, *JOB.channels)


def _known(name: str, group: str) -> Channel:
    channel = Channel(name, group, label=name)
    return next((row for row in _rows() if row == channel), channel)


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


def _job_pressure(resource: str, label: str, waiting: str) -> Channel:
    """The same for the tasks of a job."""
    selector = f'twin_job_pressure_seconds_total{{resource="{resource}",share="some"}}'
    return Channel(
        f"job_{resource}_pressure",
        scope="job",
        label=label,
        help=f"Part of the second in which at least one task of the job waited for {waiting}.",
        derivation=Derivation("rate", {"twin": Operands((selector,))}),
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
        Channel(
            "run_queue",
            scope="node",
            label="run queue",
            help="Tasks that run or wait for a CPU: 50 % is one for each hardware thread of the node.",
            collector="cpu",
            derivation=Derivation(
                "queue",
                {"twin": Operands(("twin_tasks_running",)), "node": Operands(("node_procs_running",))},
                per_thread=True,
            ),
        ),
        Channel(
            "blocked_tasks",
            scope="node",
            label="blocked tasks",
            help="Tasks that wait for I/O and cannot be interrupted: 50 % is one for each hardware thread of the node.",
            collector="cpu",
            derivation=Derivation(
                "queue",
                {"twin": Operands(("twin_tasks_blocked",)), "node": Operands(("node_procs_blocked",))},
                per_thread=True,
            ),
        ),
        Channel(
            "steal",
            scope="node",
            label="stolen time",
            help="Part of the time of all hardware threads that the hypervisor gave to other machines.",
            collector="cpu",
            derivation=Derivation("stolen", {}),
        ),
        Channel(
            "major_faults",
            scope="node",
            label="major page faults",
            help="Page faults that had to read from a disk: 50 % is 100 per second.",
            collector="paging",
            derivation=Derivation(
                "saturating",
                {"twin": Operands(("twin_major_faults_total",)), "node": Operands(("node_vmstat_pgmajfault",))},
                half=100,
            ),
        ),
        Channel(
            "swap_traffic",
            scope="node",
            label="swap traffic",
            help="Pages moved to or from swap: 50 % is 1,000 pages per second.",
            collector="paging",
            derivation=Derivation(
                "saturating",
                {
                    "twin": Operands(("twin_swap_pages_total",)),
                    "node": Operands(("node_vmstat_pswpin", "node_vmstat_pswpout")),
                },
                half=1000,
            ),
        ),
        Channel(
            "context_switches",
            scope="node",
            label="context switches",
            help="Changes from one task to another: 50 % is 1,000 per second and hardware thread.",
            collector="cpu",
            derivation=Derivation(
                "saturating",
                {
                    "twin": Operands(("twin_context_switches_total",)),
                    "node": Operands(("node_context_switches_total",)),
                },
                half=1000,
                per_thread=True,
            ),
        ),
        Channel(
            "disk_busy",
            scope="node",
            label="busy disks",
            help="Part of the second in which a disk was busy; the times of several disks are added up, at most 100 %.",
            collector="disk",
            derivation=Derivation(
                "capped",
                {
                    "twin": Operands(("twin_disk_io_seconds_total",)),
                    "node": Operands(("node_disk_io_time_seconds_total",)),
                },
            ),
        ),
        Channel(
            "disk_traffic",
            scope="node",
            label="disk traffic",
            help="Bytes read from and written to all disks: 50 % is 100 MB per second.",
            collector="disk",
            derivation=Derivation(
                "saturating",
                {
                    "twin": Operands(("twin_disk_read_bytes_total", "twin_disk_written_bytes_total")),
                    "node": Operands(("node_disk_read_bytes_total", "node_disk_written_bytes_total")),
                },
                half=100e6,
            ),
        ),
        Channel(
            "network_traffic",
            scope="node",
            label="network traffic",
            help="Bytes received and sent by network devices and RDMA ports: 50 % is 125 MB per second, or 1 Gbit/s.",
            collector="network",
            derivation=Derivation(
                "saturating",
                {
                    "twin": Operands(("twin_network_received_bytes_total", "twin_network_sent_bytes_total")),
                    "node": Operands(
                        (
                            'node_network_receive_bytes_total{device!="lo"}',
                            'node_network_transmit_bytes_total{device!="lo"}',
                            "node_infiniband_port_data_received_bytes_total",
                            "node_infiniband_port_data_transmitted_bytes_total",
                        )
                    ),
                },
                half=125e6,
            ),
        ),
        Channel(
            "network_errors",
            scope="node",
            label="network errors",
            help="Packets with errors, received and sent: 50 % is 10 per second.",
            collector="network",
            derivation=Derivation(
                "saturating",
                {
                    "twin": Operands(("twin_network_errors_total",)),
                    "node": Operands(
                        (
                            'node_network_receive_errs_total{device!="lo"}',
                            'node_network_transmit_errs_total{device!="lo"}',
                        )
                    ),
                },
                half=10,
            ),
        ),
    )
)

#: The node channels that a wide trace gives to every thread, for models that learn from them. A second in which one of
#: them is unknown is invalid in a wide trace, so only channels belong here that are known wherever PSI is.
SPREAD = Schema(NODE.channels[:4])

#: What each job did on a node in a second, from its cgroup. Only our exporter has these series.
JOB = Schema(
    (
        Channel(
            "job_cpu",
            scope="job",
            label="CPU time of the job",
            help="CPU time that the job itself used, as a part of the time of its hardware threads.",
            derivation=Derivation(
                "capped", {"twin": Operands(("twin_job_cpu_seconds_total",), ("twin_job_cpu_allocated",))}
            ),
        ),
        Channel(
            "job_system",
            scope="job",
            label="system part of the job",
            help="Part of the job's CPU time that the kernel used on its behalf.",
            derivation=Derivation(
                "share",
                {"twin": Operands(('twin_job_cpu_seconds_total{mode="system"}',), ("twin_job_cpu_seconds_total",))},
            ),
        ),
        _job_pressure("cpu", "CPU pressure of the job", "a CPU"),
        _job_pressure("memory", "memory pressure of the job", "memory"),
        _job_pressure("io", "I/O pressure of the job", "I/O"),
        Channel(
            "job_throttled",
            scope="job",
            label="throttled time of the job",
            help="Time in which its CPU quota stopped the job, as a part of the time of its hardware threads.",
            derivation=Derivation(
                "capped", {"twin": Operands(("twin_job_cpu_throttled_seconds_total",), ("twin_job_cpu_allocated",))}
            ),
        ),
        Channel(
            "job_memory",
            scope="job",
            label="memory of the job",
            help="Memory of the job that the kernel cannot take back, as a part of its limit or of the node's memory.",
            derivation=Derivation(
                "fraction",
                {"twin": Operands(("twin_job_memory_unreclaimable_bytes",), ("twin_job_memory_limit_bytes",))},
            ),
        ),
        Channel(
            "job_major_faults",
            scope="job",
            label="major page faults of the job",
            help="Page faults of the job that had to read from a disk: 50 % is 100 per second.",
            derivation=Derivation("saturating", {"twin": Operands(("twin_job_major_faults_total",))}, half=100),
        ),
        Channel(
            "job_page_faults",
            scope="job",
            label="page faults of the job",
            help="Page faults of the job, also those that read nothing from a disk: 50 % is 100 per second.",
            derivation=Derivation("saturating", {"twin": Operands(("twin_job_page_faults_total",))}, half=100),
        ),
        Channel(
            "job_io_traffic",
            scope="job",
            label="disk traffic of the job",
            help="Bytes that the job read from and wrote to block devices: 50 % is 100 MB per second.",
            derivation=Derivation(
                "saturating",
                {"twin": Operands(("twin_job_read_bytes_total", "twin_job_written_bytes_total"))},
                half=100e6,
            ),
        ),
        Channel(
            "job_oom_kills",
            scope="job",
            label="processes of the job killed for memory",
            help="Processes that the kernel killed because the job was out of memory: 50 % is one in a second.",
            derivation=Derivation("saturating", {"twin": Operands(("twin_job_oom_kills_total",))}, half=1),
        ),
    )
)
