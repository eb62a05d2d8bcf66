"""Read what the kernel counts of a node, of job groups and of their processes: files -> name -> integer.

Names are the kernel's own: `stat/cpu1/user`, `meminfo/MemAvailable`, `pressure/io/some`, `job/cpuacct.usage`,
`job/1234/utime`. Times keep the kernel's units (`units` in the header of a raw run).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from clustertwin.telemetry.campaign.zoo.job_group import JobGroup

PROC = Path("/proc")
CPU_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
_DISK = ("reads", "reads_merged", "sectors_read", "read_ms", "writes", "writes_merged", "sectors_written", "write_ms")
DISK_FIELDS = (*_DISK, "in_flight", "io_ms", "weighted_io_ms")
_NET = ("bytes", "packets", "errs", "drop")
#: Position in /proc/PID/stat after the name, and what is there.
_STAT_FIELDS = {0: "state", 7: "minflt", 9: "majflt", 11: "utime", 12: "stime", 17: "threads", 21: "rss_pages"}
_STATUS_FIELDS = ("VmSwap", "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
_GROUP_FILES = {
    "cpu": ("cpu.stat",),
    "cpuacct": ("cpuacct.stat", "cpuacct.usage"),
    "memory": ("memory.stat", "memory.usage_in_bytes", "memory.limit_in_bytes", "memory.failcnt", "memory.oom_control"),
    "blkio": ("blkio.throttle.io_service_bytes", "blkio.throttle.io_serviced"),
    "unified": ("cpu.stat", "cpu.pressure", "memory.pressure", "io.pressure"),
}
_MOST_PROCESSES = 24  # of a group, in one sample


def read_counters(groups: Mapping[str, JobGroup], proc: Path = PROC) -> dict[str, int]:
    """One sample of the node and of the groups, by the names that the groups have in it."""
    sample: dict[str, int] = {}
    for file, parse in _NODE_FILES.items():
        for name, value in parse(_text(proc / file)):
            sample[f"{file.replace('net/', '')}/{name}"] = value
    for label, group in groups.items():
        for controller, files in _GROUP_FILES.items():
            for file in files:
                prefix = f"{label}/{'v2.' if controller == 'unified' else ''}{file}"
                for name, value in parse_group_file(_text(group.folders[controller] / file)):
                    sample[f"{prefix}/{name}".rstrip("/")] = value
        processes = group.processes()
        sample[f"{label}/processes"] = len(processes)
        for process in processes[:_MOST_PROCESSES]:
            for name, value in _of_process(proc / str(process)):
                sample[f"{label}/{process}/{name}"] = value
    return sample


def process_names(group: JobGroup) -> set[str]:
    """The names of the programs that run in a group."""
    names = {_text(PROC / str(process) / "comm").strip() for process in group.processes()}
    return names - {""}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # the process ended, or this kernel lacks the file


def parse_stat(text: str) -> Iterator[tuple[str, int]]:
    """/proc/stat -> clock ticks of every CPU by mode, and the node's counts.

    >>> dict(parse_stat("cpu1 5 0 2 90\\nctxt 7\\n"))["cpu1/idle"]
    90
    """
    for line in text.splitlines():
        name, *numbers = line.split()
        if name.startswith("cpu") and name != "cpu":
            yield from ((f"{name}/{mode}", int(number)) for mode, number in zip(CPU_MODES, numbers, strict=False))
        elif name in ("ctxt", "processes", "procs_running", "procs_blocked"):
            yield name, int(numbers[0])


def parse_pairs(text: str) -> Iterator[tuple[str, int]]:
    """`name value` or `name: value kB` on each line.

    >>> list(parse_pairs("MemTotal:  24 kB\\npgfault 3"))
    [('MemTotal', 24), ('pgfault', 3)]
    """
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2 and words[1].isdecimal():
            yield words[0].rstrip(":"), int(words[1])


def parse_pressure(text: str) -> Iterator[tuple[str, int]]:
    """Microseconds in which some, or all, tasks waited.

    >>> list(parse_pressure("some avg10=1.00 avg60=0.00 avg300=0.00 total=41"))
    [('some', 41)]
    """
    for line in text.splitlines():
        share, *_, total = line.split()
        yield share, int(total.removeprefix("total="))


def _parse_loadavg(text: str) -> Iterator[tuple[str, int]]:
    runnable, _, tasks = text.split()[3].partition("/")
    yield from (("runnable", int(runnable)), ("tasks", int(tasks)))


def _parse_diskstats(text: str) -> Iterator[tuple[str, int]]:
    for line in text.splitlines():
        _, _, device, *numbers = line.split()
        if not device.startswith(("loop", "ram", "zram")):
            yield from ((f"{device}/{f}", int(n)) for f, n in zip(DISK_FIELDS, numbers, strict=False))


def _parse_net_dev(text: str) -> Iterator[tuple[str, int]]:
    for line in text.splitlines()[2:]:
        interface, _, rest = line.partition(":")
        numbers = rest.split()
        for start, way in ((0, "receive"), (8, "transmit")):
            for field, number in zip(_NET, numbers[start:], strict=False):
                yield f"{interface.strip()}/{way}_{field}", int(number)


def parse_group_file(text: str) -> Iterator[tuple[str, int]]:
    """Any file of a control group: one number, pairs, pressure, or `254:0 Read 4096`."""
    for line in text.splitlines():
        words = line.split()
        if len(words) == 1 and words[0].isdecimal():
            yield "", int(words[0])
        elif words[-1].startswith("total="):
            yield from parse_pressure(line)
        elif len(words) > 1 and words[-1].isdecimal():
            yield "/".join(words[:-1]), int(words[-1])


def _of_process(folder: Path) -> Iterator[tuple[str, int]]:
    stat = _text(folder / "stat").rpartition(")")[2].split()
    if len(stat) < 40:
        return
    for place, name in _STAT_FIELDS.items():
        yield name, ord(stat[place]) if place == 0 else int(stat[place])
    yield "blkio_ticks", int(stat[39])
    for name, value in parse_pairs(_text(folder / "status")):
        if name in _STATUS_FIELDS:
            yield name, value
    yield from parse_pairs(_text(folder / "io"))


_NODE_FILES = {
    "stat": parse_stat,
    "meminfo": parse_pairs,
    "vmstat": parse_pairs,
    "loadavg": _parse_loadavg,
    "diskstats": _parse_diskstats,
    "net/dev": _parse_net_dev,
    "pressure/cpu": parse_pressure,
    "pressure/memory": parse_pressure,
    "pressure/io": parse_pressure,
}
