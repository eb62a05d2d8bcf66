"""Job logs in the formats of the field: path <-> `Jobs`. Readers are strict; with `lenient` they repair and report."""

from __future__ import annotations

import gzip
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from clustertwin.core import files
from clustertwin.core.errors import SettingsError, TraceError
from clustertwin.core.extras import load
from clustertwin.workload.formats.parsing.byte_stream import Progress, head, is_utf16
from clustertwin.workload.formats.parsing.findings import LogFinding, LogFindings, ParsedLog
from clustertwin.workload.formats.parsing.validation import to_jobs
from clustertwin.workload.jobs import Jobs

__all__ = ["FORMATS", "Format", "LogFinding", "ParsedLog", "read", "read_report", "sniff", "writable", "write"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Format:
    """A file format: its suffixes for writing, a pattern of its first bytes, and the module that implements it."""

    suffixes: tuple[str, ...]
    pattern: re.Pattern[bytes]
    module: str  # has `read_raw(path, findings, progress, timezone)` and, if it can be written, `write(parts, out)`
    writes: bool = True


_HERE = "clustertwin.workload.formats"

#: Detection tries the formats in this order. The suffix of the target chooses the format for writing.
FORMATS: dict[str, Format] = {
    "parquet": Format((".parquet",), re.compile(rb"PAR1"), f"{_HERE}.parquet"),
    "alcf": Format((".csv",), re.compile(rb"(?=[^\n]*\brun_time\b)(?=[^\n]*\b(submit_time|interval)\b)[^\n]*,"),
                   f"{_HERE}.alcf"),
    "supercloud": Format((".csv",), re.compile(rb"(?=[^\n]*\bid_job\b)(?=[^\n]*\btime_submit\b)[^\n]*,"),
                         f"{_HERE}.supercloud"),
    "sacct": Format((".sacct",), re.compile(rb"(?=[^\n]*\bJobID)(?=[^\n]*\bSubmit\b)[^\n]*\|"), f"{_HERE}.sacct"),
    "swf": Format((".swf",), re.compile(rb"\s*(;|(-?[\d.]+[ \t]+){4})"), f"{_HERE}.swf"),
}  # fmt: skip


def sniff(path: Path) -> str:
    """The format of a file, from its first bytes. The file name does not count."""
    start = head(path)
    if not start.strip():
        raise TraceError(path, "the file is empty")
    for name, candidate in FORMATS.items():
        if candidate.pattern.match(start):
            return name
    first, _, second = start.partition(b"\n")
    for name, candidate in FORMATS.items():
        separator = {"sacct": b"|", "swf": b" "}.get(name, b",")
        for found in (b";", b"\t", b","):
            if name != "swf" and found in first and candidate.pattern.match(first.replace(found, separator)):
                was, shown = found.decode(), separator.decode()
                reason = f"the columns of this {name} log are separated by {was!r}; replace it by {shown!r}"
                raise TraceError(path, f"{reason}, or print it with --parsable2" if name == "sacct" else reason, 1)
    if b"JobID" in first and second.startswith(b"---"):
        raise TraceError(path, "a table of sacct for people, which cuts words; print the log with --parsable2", 1)
    if path.suffix == ".swf":
        return "swf"  # its reader reports what is wrong with the first line
    known = ", ".join(FORMATS)
    reason = (
        f"the content matches no known job log format ({known}); `twin trace convert --from FORMAT` names one. For "
        "another table, use Python: ct.write_log(ct.Jobs.from_pandas(frame), 'log.swf')"
    )
    raise TraceError(path, reason, 1)


def read_report(
    path: Path | str,
    lenient: bool = False,
    format: str | None = None,
    timezone: str | None = None,
    progress: Progress | None = None,
) -> ParsedLog:
    """A log and all findings about it. `timezone` (an IANA name) applies to local times and to hours of the day."""
    path = Path(path)
    name = format or sniff(path)
    if name not in FORMATS:
        raise SettingsError(f"unknown format {name!r}; use one of {', '.join(FORMATS)}")
    if timezone is not None:
        _check_zone(timezone)
    findings = LogFindings(path)
    if is_utf16(path):
        findings.note(None, "the text is UTF-16; it was read as such")
    raw = load(f"{FORMATS[name].module}:read_raw")(path, findings, progress, timezone)
    jobs, as_written = to_jobs(raw, findings)
    return ParsedLog(jobs, name, findings.settle(lenient), as_written)


def read(
    path: Path | str,
    lenient: bool = False,
    format: str | None = None,
    timezone: str | None = None,
    progress: Progress | None = None,
) -> Jobs:
    """The jobs of a log, in the order of submission. Repairs of a lenient read are summarised through `logging`."""
    parsed = read_report(path, lenient, format, timezone, progress)
    if parsed.faults:
        log.warning("%s: %s", path, parsed.summary())
    return parsed.jobs


def write(jobs: Jobs | Iterable[Jobs], path: Path | str, force: bool = False, format: str | None = None) -> int:
    """Write a log, or its parts in order, in the format of the suffix; returns the number of jobs.

    Parts are written as they arrive, so a log may be larger than memory.
    """
    path = Path(path)
    writer = load(f"{FORMATS[format or writable(path)].module}:write")
    parts = [jobs] if isinstance(jobs, Jobs) else jobs
    files.refuse_existing(path, force)
    with files.replacing(path) as out:
        if path.suffix == ".gz":
            # Without a file name and a time in the gzip header, the same jobs give the same bytes.
            with gzip.GzipFile("", "wb", fileobj=out, mtime=0) as packed:
                return int(writer(parts, packed))
        return int(writer(parts, out))


def writable(path: Path) -> str:
    """The format for writing that belongs to the suffix of a path."""
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    for name, candidate in FORMATS.items():
        if suffix in candidate.suffixes and candidate.writes:
            return name
    known = ", ".join(dict.fromkeys(suffix for entry in FORMATS.values() if entry.writes for suffix in entry.suffixes))
    problem = f"no format is written with the suffix {suffix}" if suffix else "the file name has no suffix"
    raise SettingsError(f"{path}: {problem}; use one of {known}")


def _check_zone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise SettingsError(f"unknown time zone {name!r}; use an IANA name such as Europe/Rome") from error
