"""Format values and names for people: seconds, ratios, thread ids -> text. An unknown value is a dash, never zero."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from math import isfinite, isnan

UNKNOWN = "–"
_YEAR_10000_S = 253_402_300_800.0


def visible(name: str) -> str:
    r"""The name with control characters and marks of writing direction spelled out: they would act on a terminal.

    >>> visible("n1"), visible("n\x1b[31m\u202e1")
    ('n1', 'n\\x1b[31m\\u202e1')
    """
    if name.isprintable():
        return name
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in name)


def visible_lines(text: str) -> str:
    """The text with every line made visible; line ends stay."""
    return "\n".join(map(visible, text.split("\n")))


def shortened(text: str, most: int) -> str:
    r"""At most this many characters, without bytes of an argument that are not UTF-8: no file could hold them.

    >>> shortened("a long reason", 7), shortened("disk \udcff", 20)
    ('a long…', 'disk \\udcff')
    """
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= most else f"{text[: most - 1]}…"


def number(value: float | None, digits: int = 1) -> str:
    if value is None or isnan(value):
        return UNKNOWN
    return f"{value:,.{digits}f}" if isfinite(value) else "∞"


def percent(ratio: float | None, digits: int = 0) -> str:
    return UNKNOWN if ratio is None or isnan(ratio) else f"{100 * ratio:.{digits}f} %"


def duration(seconds: float | None) -> str:
    """The two largest units that are not zero.

    >>> duration(93)
    '1 min 33 s'
    """
    if seconds is None or not isfinite(seconds):
        return UNKNOWN
    left = round(max(seconds, 0))
    parts = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def iso_time(epoch_s: float | None) -> str:
    """ISO 8601 in UTC. The pages convert it to the reader's time zone."""
    if epoch_s is None or not isfinite(epoch_s) or epoch_s <= 0:
        return ""
    if epoch_s >= _YEAR_10000_S:  # a calendar has no such day
        return ""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def clock(epoch_s: float | None) -> str:
    """Date and time in UTC, for messages and for browsers without JavaScript."""
    return iso_time(epoch_s).replace("T", " ").replace("Z", " UTC") or UNKNOWN


def local_time(epoch_s: float) -> str:
    """Date and time where this machine is, for the terminal; a dash beyond the calendar."""
    return f"{datetime.fromtimestamp(epoch_s):%Y-%m-%d %H:%M}" if 0 <= epoch_s < _YEAR_10000_S - 86_400 else UNKNOWN


def ranges(cpus: Iterable[int]) -> str:
    """A list of CPUs as the kernel writes it.

    >>> ranges((0, 1, 2, 5))
    '0-2,5'
    """
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


@lru_cache(maxsize=1 << 16)  # the same nodes and jobs are sorted at every scoring
def natural(name: str) -> str:
    """A key that sorts the numbers in names by their value.

    >>> sorted(["n10", "n9", "n9a"], key=natural)
    ['n9', 'n9a', 'n10']
    """
    return re.sub(r"[0-9]+", lambda digits: digits[0].zfill(12), name)


def counted(count: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "thread"), counted(1024, "thread")
    ('1 thread', '1,024 threads')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(names: Sequence[str], most: int, what: str = "") -> str:
    """At most this many names, and how many others there are.

    >>> listed(["n1", "n2"], 3), listed(["n1", "n2", "n3"], 1, " nodes")
    ('n1, n2', 'n1 and 2 more nodes')
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more{what}" if more > 0 else "")


def sparkline(values: Sequence[float], top: float, width: int = 100, height: int = 20) -> str:
    """The path of an SVG of this size. `top` is the value at the upper edge; an unknown value is a gap."""
    if not len(values) or not top > 0:
        return ""
    step = width / max(len(values) - 1, 1)
    path, drawing = [], False
    for i, value in enumerate(values):
        if isnan(value):
            drawing = False
            continue
        y = height - min(max(value / top, 0.0), 1.0) * (height - 1) - 0.5
        path.append(f"{'L' if drawing else 'M'}{i * step:.1f} {y:.1f}")
        drawing = True
    return "".join(path)
