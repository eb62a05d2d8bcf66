"""The table of files in a job's cgroup: the words of a file -> sample lines.

A file arrives as its words, with `=` replaced by a blank: `user_usec 7 …`, `some avg10 0.00 … total 7 …`, or a number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from clustertwin.telemetry.exporter.text.text_format import family

#: In the order of the page.
FAMILIES: dict[str, bytes] = {
    name: family(name, kind, text)
    for name, kind, text in (
        ("twin_job_cpu_allocated", "gauge", "1 for every hardware thread in the job's own CPU set."),
        ("twin_job_owner_uid", "gauge", "The user id of the job's owner."),
        ("twin_job_cpu_seconds_total", "counter", "CPU seconds that the job used, by mode."),
        ("twin_job_cpu_throttled_seconds_total", "counter", "Seconds in which the CPU quota stopped the job."),
        ("twin_job_memory_bytes", "gauge", "Memory that the job uses, including files in memory."),
        ("twin_job_memory_peak_bytes", "gauge", "The most memory that the job has used so far."),
        ("twin_job_memory_unreclaimable_bytes", "gauge", "Memory of the job that the kernel cannot take back."),
        ("twin_job_memory_limit_bytes", "gauge", "The job's own limit, or the memory of the node if that is less."),
        ("twin_job_major_faults_total", "counter", "Page faults of the job that had to read from a disk."),
        ("twin_job_page_faults_total", "counter", "Page faults of the job, with those that read nothing from a disk."),
        ("twin_job_oom_kills_total", "counter", "Processes of the job killed because memory ran out."),
        (
            "twin_job_pressure_seconds_total",
            "counter",
            "Seconds in which some or all (full) tasks of the job waited.",
        ),
        ("twin_job_read_bytes_total", "counter", "Bytes that the job read from block devices."),
        ("twin_job_written_bytes_total", "counter", "Bytes that the job wrote to block devices."),
    )
}

#: The words of a file and the labels of the job -> the sample lines of each family of the file, in order.
#: Raises ValueError or KeyError if the kernel would not write such a file.
Writer = Callable[[list[bytes], bytes], tuple[bytes, ...]]

#: Words of memory.stat that add up to memory that only swapping or an OOM kill gives back. The first is always there.
UNRECLAIMABLE = (
    b"anon",
    b"shmem",
    b"kernel_stack",
    b"pagetables",
    b"sec_pagetables",
    b"percpu",
    b"sock",
    b"vmalloc",
    b"slab_unreclaimable",
)
UNRECLAIMABLE_V1 = (b"total_rss", b"total_shmem")

_CPU = b'twin_job_cpu_seconds_total{%b,mode="user"} %de-6\ntwin_job_cpu_seconds_total{%b,mode="system"} %de-6\n'


def words_of(text: bytes) -> list[bytes]:
    return text.replace(b"=", b" ").split()


def words_among(*keys: bytes) -> Callable[[bytes], list[bytes]]:
    """Only these keys of a long file, each with its number: a fifth of the cost of all words."""
    heads = [(key, b"\n" + key + b" ") for key in keys]

    def words(text: bytes) -> list[bytes]:
        text, found = b"\n" + text, []
        for key, head in heads:
            at = text.find(head)
            if at >= 0:
                begin, end = at + len(head), text.find(b"\n", at + 1)
                found += [key, text[begin : end if end >= 0 else None]]
        return found

    return words


def cpu_stat(words: list[bytes], labels: bytes) -> tuple[bytes, ...]:
    usec = dict(zip(words[::2], words[1::2], strict=False))
    used = _CPU % (labels, int(usec[b"user_usec"]), labels, int(usec[b"system_usec"]))
    if b"throttled_usec" not in usec:
        return (used,)
    return used, b"twin_job_cpu_throttled_seconds_total{%b} %de-6\n" % (labels, int(usec[b"throttled_usec"]))


def io_stat(words: list[bytes], labels: bytes) -> tuple[bytes, ...]:
    read, written = (
        sum(int(value) for key, value in pairwise(words) if key == name) for name in (b"rbytes", b"wbytes")
    )
    return (
        b"twin_job_read_bytes_total{%b} %d\n" % (labels, read),
        b"twin_job_written_bytes_total{%b} %d\n" % (labels, written),
    )


def throttled_v1(words: list[bytes], labels: bytes) -> tuple[bytes, ...]:
    nsec = int(words[words.index(b"throttled_time") + 1])
    return (b"twin_job_cpu_throttled_seconds_total{%b} %de-9\n" % (labels, nsec),)


def memory_stat(words: list[bytes], labels: bytes) -> tuple[bytes, ...]:
    """What the kernel can give back at once is left out: files in memory, and slabs that it can drop."""
    return _memory(words, labels, UNRECLAIMABLE, (b"pgmajfault", b"pgfault"))


def memory_stat_v1(words: list[bytes], labels: bytes) -> tuple[bytes, ...]:
    return _memory(words, labels, UNRECLAIMABLE_V1, (b"total_pgmajfault", b"total_pgfault"))


def _memory(
    words: list[bytes], labels: bytes, parts: tuple[bytes, ...], faults: tuple[bytes, bytes]
) -> tuple[bytes, ...]:
    counts = dict(zip(words[::2], words[1::2], strict=False))
    used = int(counts[parts[0]]) + sum(int(counts.get(part, 0)) for part in parts[1:])
    major, every = faults
    lines = (
        b"twin_job_memory_unreclaimable_bytes{%b} %d\n" % (labels, used),
        b"twin_job_major_faults_total{%b} %d\n" % (labels, int(counts[major])),
    )
    if every not in counts:
        return lines
    return (*lines, b"twin_job_page_faults_total{%b} %d\n" % (labels, int(counts[every])))


def oom_kills(words: list[bytes], labels: bytes) -> tuple[bytes, ...]:
    """`memory.events` of v2, and `memory.oom_control` of v1 since Linux 4.13."""
    if b"oom_kill" not in words:
        return ()
    return (b"twin_job_oom_kills_total{%b} %d\n" % (labels, int(words[words.index(b"oom_kill") + 1])),)


def number(metric: str) -> Writer:
    """A file of one number of bytes."""
    line = metric.encode() + b"{%b} %d\n"
    return lambda words, labels: (line % (labels, int(b" ".join(words))),)


def cpuacct(mode: str) -> Writer:
    """A v1 file of one number of nanoseconds."""
    line = b'twin_job_cpu_seconds_total{%b,mode="' + mode.encode() + b'"} %de-9\n'
    return lambda words, labels: (line % (labels, int(b" ".join(words))),)


def pressure(resource: str) -> Writer:
    line = b'twin_job_pressure_seconds_total{%b,resource="' + resource.encode() + b'",share="%b"} %de-6\n'

    def write(words: list[bytes], labels: bytes) -> tuple[bytes, ...]:
        shares = zip(words[::9], words[7::9], words[8::9], strict=True)
        return (b"".join([line % (labels, _SHARES[share, key], int(total)) for share, key, total in shares]),)

    return write


_SHARES = {(b"some", b"total"): b"some", (b"full", b"total"): b"full"}


@dataclass(frozen=True, slots=True)
class JobFile:
    """A file of a job's directory. All are optional: workload managers delegate only some controllers."""

    version: int
    name: str
    families: tuple[str, ...]
    write: Writer
    words: Callable[[bytes], list[bytes]] = words_of
    in_batches: bool = True  # False: a batch would cost more than one at a time

    @property
    def key(self) -> str:
        """cgroup v1 and v2 have files of the same name."""
        return f"{self.version}/{self.name}"


_USED = "twin_job_cpu_seconds_total"
_MEMORY = ("twin_job_memory_unreclaimable_bytes", "twin_job_major_faults_total", "twin_job_page_faults_total")
_MEMORY_WORDS = words_among(*UNRECLAIMABLE, b"pgmajfault", b"pgfault")
_MEMORY_WORDS_V1 = words_among(*UNRECLAIMABLE_V1, b"total_pgmajfault", b"total_pgfault")
FILES: tuple[JobFile, ...] = (
    JobFile(2, "cpu.stat", (_USED, "twin_job_cpu_throttled_seconds_total"), cpu_stat),
    JobFile(2, "memory.current", ("twin_job_memory_bytes",), number("twin_job_memory_bytes")),
    JobFile(2, "memory.peak", ("twin_job_memory_peak_bytes",), number("twin_job_memory_peak_bytes")),
    JobFile(2, "memory.stat", _MEMORY, memory_stat, _MEMORY_WORDS, in_batches=False),
    JobFile(2, "memory.events", ("twin_job_oom_kills_total",), oom_kills),
    JobFile(2, "cpu.pressure", ("twin_job_pressure_seconds_total",), pressure("cpu")),
    JobFile(2, "io.pressure", ("twin_job_pressure_seconds_total",), pressure("io")),
    JobFile(2, "memory.pressure", ("twin_job_pressure_seconds_total",), pressure("memory")),
    JobFile(2, "io.stat", ("twin_job_read_bytes_total", "twin_job_written_bytes_total"), io_stat),
    JobFile(1, "cpuacct.usage_user", (_USED,), cpuacct("user")),
    JobFile(1, "cpuacct.usage_sys", (_USED,), cpuacct("system")),
    JobFile(1, "cpu.stat", ("twin_job_cpu_throttled_seconds_total",), throttled_v1),
    JobFile(1, "memory.stat", _MEMORY, memory_stat_v1, _MEMORY_WORDS_V1, in_batches=False),
    JobFile(1, "memory.oom_control", ("twin_job_oom_kills_total",), oom_kills),
    JobFile(1, "memory.usage_in_bytes", ("twin_job_memory_bytes",), number("twin_job_memory_bytes")),
    JobFile(1, "memory.max_usage_in_bytes", ("twin_job_memory_peak_bytes",), number("twin_job_memory_peak_bytes")),
)
