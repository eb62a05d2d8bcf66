"""Job logs in the formats of the field: path <-> `Jobs`. Readers are strict; `lenient` ones mend and report."""

from __future__ import annotations

import gzip
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from clustertwin.core.errors import SettingsError, TraceError
from clustertwin.core.extras import load
from clustertwin.workload.formats.reading import Finding, Findings, Reading
from clustertwin.workload.formats.rules import to_jobs
from clustertwin.workload.formats.source import Progress, head
from clustertwin.workload.formats.whole import refuse_existing, writing
from clustertwin.workload.jobs import Jobs

__all__ = [
    "FORMATS",
    "Finding",
    "Format",
    "Reading",
    "read",
    "read_report",
    "refuse_existing",
    "sniff",
    "writable",
    "write",
    "writing",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Format:
    """A format: the suffixes it is written under, how its first bytes look, where its code lies."""

    suffixes: tuple[str, ...]
    looks: re.Pattern[bytes]
    module: str  # has `read_raw(path, findings, progress, timezone)` and, if it can be written, `write(parts, out)`
    writes: bool = True


#: Tried in this order; the suffix decides what is written.
FORMATS: dict[str, Format] = {
    "parquet": Format((".parquet",), re.compile(rb"PAR1"), "clustertwin.workload.formats.parquet"),
    "alcf": Format((".csv",), re.compile(rb"(?=[^\n]*\brun_time\b)(?=[^\n]*\b(submit_time|interval)\b)[^\n]*,"),
                   "clustertwin.workload.formats.alcf"),
    "supercloud": Format((".csv",), re.compile(rb"(?=[^\n]*\bid_job\b)(?=[^\n]*\btime_submit\b)[^\n]*,"),
                         "clustertwin.workload.formats.supercloud"),
    "sacct": Format((".sacct",), re.compile(rb"(?=[^\n]*\bJobID)(?=[^\n]*\bSubmit\b)[^\n]*\|"),
                    "clustertwin.workload.formats.sacct"),
    "swf": Format((".swf",), re.compile(rb"\s*(;|(-?[\d.]+[ \t]+){4})"), "clustertwin.workload.formats.swf"),
}  # fmt: skip


def sniff(path: Path) -> str:
    """The format of a file by its first bytes; names lie."""
    start = head(path).removeprefix(b"\xef\xbb\xbf")
    if not start.strip():
        raise TraceError(path, "the file is empty")
    for name, known in FORMATS.items():
        if known.looks.match(start):
            return name
    if path.suffix == ".swf":
        return "swf"  # whose reader says what is wrong with the first line
    raise TraceError(path, f"not a job log of a known kind ({', '.join(FORMATS)}); --from names one", 1)


def read_report(
    path: Path | str,
    lenient: bool = False,
    format: str | None = None,
    timezone: str | None = None,
    progress: Progress | None = None,
) -> Reading:
    """A log with every finding. `timezone`: where its local times or its hours of the day are meant, an IANA name."""
    path = Path(path)
    name = format or sniff(path)
    if name not in FORMATS:
        raise SettingsError(f"no format {name!r}; there are {', '.join(FORMATS)}")
    if timezone is not None:
        _check_zone(timezone)
    findings = Findings(path)
    raw = load(f"{FORMATS[name].module}:read_raw")(path, findings, progress, timezone)
    jobs, as_written = to_jobs(raw, findings)
    return Reading(jobs, name, findings.settle(lenient), as_written)


def read(
    path: Path | str,
    lenient: bool = False,
    format: str | None = None,
    timezone: str | None = None,
    progress: Progress | None = None,
) -> Jobs:
    """A log's jobs, in the order of submission. Lenient: what had to be mended is summed up in the log (`logging`)."""
    reading = read_report(path, lenient, format, timezone, progress)
    if reading.faults:
        log.warning("%s: %s", path, reading.summary())
    return reading.jobs


def write(jobs: Jobs | Iterable[Jobs], path: Path | str, force: bool = False, format: str | None = None) -> int:
    """A log, or its parts in order, to a file in the format of its suffix; gives the number of jobs written.

    Parts are written as they come, so a log may be larger than memory.
    """
    path = Path(path)
    writer = load(f"{FORMATS[format or writable(path)].module}:write")
    parts = [jobs] if isinstance(jobs, Jobs) else jobs
    with writing(path, force) as out:
        if path.suffix == ".gz":
            # No file name and no time inside: the same jobs give the same bytes.
            with gzip.GzipFile("", "wb", fileobj=out, mtime=0) as packed:
                return int(writer(parts, packed))
        return int(writer(parts, out))


def writable(path: Path) -> str:
    """The format a path's suffix asks for."""
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    for name, known in FORMATS.items():
        if suffix in known.suffixes and known.writes:
            return name
    asked = ", ".join(suffix for known in FORMATS.values() if known.writes for suffix in known.suffixes)
    raise SettingsError(f"{path}: no format is written as {suffix or 'a file without suffix'}; there are {asked}")


def _check_zone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise SettingsError(f"no time zone {name!r}; use a name like Europe/Rome") from error
