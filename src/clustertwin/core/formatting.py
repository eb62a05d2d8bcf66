"""Numbers as people read them: seconds, ratios, threads -> words; what is unknown is a dash, never a zero."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from math import isfinite, isnan

UNKNOWN = "–"


def number(value: float | None, digits: int = 1) -> str:
    if value is None or isnan(value):
        return UNKNOWN
    return f"{value:,.{digits}f}" if isfinite(value) else "∞"


def percent(ratio: float | None, digits: int = 0) -> str:
    return UNKNOWN if ratio is None or isnan(ratio) else f"{100 * ratio:.{digits}f} %"


def lasting(seconds: float | None) -> str:
    """`93` -> `1 min 33 s`; the two largest units that say something."""
    if seconds is None or not isfinite(seconds):
        return UNKNOWN
    left = round(max(seconds, 0))
    parts = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def moment(epoch_s: float | None) -> str:
    """ISO 8601 in UTC; the page turns it into the reader's own time."""
    if epoch_s is None or not isfinite(epoch_s) or epoch_s <= 0:
        return ""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def clock(epoch_s: float | None) -> str:
    """For readers without scripts: date and time in UTC."""
    return moment(epoch_s).replace("T", " ").replace("Z", " UTC") or UNKNOWN


def ranges(cpus: Iterable[int]) -> str:
    """`(0, 1, 2, 5)` -> `0-2,5`, as the kernel writes it."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def counted(n: int, noun: str) -> str:
    """`1 thread`, `1,024 threads`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def sparkline(values: Sequence[float], top: float, width: int = 100, height: int = 20) -> str:
    """The path of an SVG over so many units: gaps where unknown, `top` at the upper edge."""
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
