"""Parse the exposition text of any exporter: the bytes of a /metrics page -> samples, types and helps.

The grammar is Prometheus's text format 0.0.4, plus the parts of OpenMetrics that real exporters emit (UNIT, EOF,
exemplars, timestamps in seconds). Anything else is an `ExpositionError` with the line. The text comes from the
network, so its size, line length, labels and samples are limited. For the second and later pages of a target, use
`incremental_parser`, which is a hundred times faster.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from clustertwin.core.errors import ExpositionError


@dataclass(frozen=True, slots=True)
class ExpositionLimits:
    """The limits of a page: ten times what a node with 512 threads and a thousand jobs needs."""

    text_bytes: int = 16 << 20
    line_chars: int = 16 << 10
    lines: int = 200_000  # counted before the first is parsed
    labels: int = 64
    samples: int = 100_000


class MetricSample(NamedTuple):
    """One sample line. `time_s` is None unless the page has timestamps."""

    name: str
    labels: dict[str, str]
    value: float
    time_s: float | None = None


@dataclass(frozen=True, slots=True)
class Exposition:
    """A page: its samples in order, and the type and help of each metric."""

    samples: tuple[MetricSample, ...]
    types: dict[str, str]
    helps: dict[str, str]


_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r"[a-zA-Z_][a-zA-Z0-9_]*"
_QUOTED = r'"[^"\\]*(?:\\.[^"\\]*)*"'
#: Stricter than float(), which also accepts 1_000 and ٣: this is what Prometheus accepts.
NUMBER = r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf|infinity))|(?i:nan)"
_SAMPLE = re.compile(
    rf"(?P<name>{_NAME})(?:[ \t]*\{{(?P<labels>[^\"}}]*(?:{_QUOTED}[^\"}}]*)*)\}}[ \t]*|[ \t]+)"
    rf"(?P<value>{NUMBER})(?:[ \t]+(?P<time>{NUMBER}))?(?:[ \t]+\#[ \t]*\{{.*)?"
)
_PAIR = re.compile(rf'[ \t]*(?P<name>{_LABEL})[ \t]*=[ \t]*"(?P<value>[^"\\]*(?:\\.[^"\\]*)*)"[ \t]*(?:,|$)')
_COMMENT = re.compile(rf"\#[ \t]*(?P<word>HELP|TYPE)[ \t]+(?P<name>{_NAME})(?:[ \t]+(?P<rest>.*))?")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"\\": "\\", '"': '"', "n": "\n"}
_TYPES = ("counter", "gauge", "histogram", "summary", "untyped", "unknown", "info", "stateset", "gaugehistogram")


def parse(text: bytes, where: object = "exposition", limits: ExpositionLimits | None = None) -> Exposition:
    """A whole page, or an `ExpositionError` with `where`, the line and the reason."""
    limits = limits or ExpositionLimits()
    if len(text) > limits.text_bytes:
        raise ExpositionError(where, f"{len(text)} bytes; the limit is {limits.text_bytes}")
    if (count := text.count(b"\n")) > limits.lines:
        raise ExpositionError(where, f"{count} lines; the limit is {limits.lines}")
    samples: list[MetricSample] = []
    types: dict[str, str] = {}
    helps: dict[str, str] = {}
    known: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    lines = _lines(text, where)
    # OpenMetrics ends with EOF and has timestamps in seconds; the older format has milliseconds.
    per_s = 1.0 if lines and lines[-1] == "# EOF" else 1000.0
    for at, line in enumerate(lines, 1):
        try:
            if len(line) > limits.line_chars:
                raise ValueError(f"a line of {len(line)} characters; the limit is {limits.line_chars}")
            line = line.strip(" \t")
            if not line:
                continue
            if line.startswith("#"):
                _comment(line, types, helps)
                continue
            sample = _sample(line, per_s, limits.labels)
            series = sample.name, frozenset(sample.labels.items())
            if series in known:
                raise ValueError(f"{sample.name} has a second sample with the same labels")
            known.add(series)
            samples.append(sample)
            if len(samples) > limits.samples:
                raise ValueError(f"more than {limits.samples} samples")
        except ValueError as reason:
            raise ExpositionError(where, str(reason), at) from None
    return Exposition(tuple(samples), types, helps)


def _lines(text: bytes, where: object) -> list[str]:
    try:
        lines = text.decode().split("\n")
    except UnicodeDecodeError as reason:
        raise ExpositionError(where, f"not UTF-8: {reason.reason}", text.count(b"\n", 0, reason.start) + 1) from None
    if not lines[-1]:
        lines.pop()
    return lines


def _comment(line: str, types: dict[str, str], helps: dict[str, str]) -> None:
    """Store a HELP or TYPE line; ignore other comments."""
    match = _COMMENT.fullmatch(line)
    if match is None:
        if line.split(maxsplit=2)[1:2] in (["HELP"], ["TYPE"]):
            raise ValueError(f"{line[:60]!r} names no metric")
        return
    name, rest = match["name"], (match["rest"] or "").strip(" \t")
    if match["word"] == "HELP":
        helps[name] = _unescape(rest, strict=False)
    elif rest not in _TYPES:
        raise ValueError(f"{rest[:60]!r} is not a type; the types are {', '.join(_TYPES)}")
    elif types.setdefault(name, rest) != rest:
        raise ValueError(f"{name} is declared as {types[name]} and as {rest}")


def _sample(line: str, per_s: float, most_labels: int) -> MetricSample:
    match = _SAMPLE.fullmatch(line)
    if match is None:
        raise ValueError(_diagnosis(line))
    name, body, value, time = match.group("name", "labels", "value", "time")
    labels = _labels(body, most_labels) if body else {}
    return MetricSample(name, labels, float(value), None if time is None else float(time) / per_s)


def _labels(body: str, most: int) -> dict[str, str]:
    """The text between the braces -> label name -> value."""
    labels: dict[str, str] = {}
    at, end = 0, len(body.rstrip(" \t"))
    while at < end:
        match = _PAIR.match(body, at)
        if match is None:
            raise ValueError(f'{body[at : at + 60]!r} is not a label="value"')
        name, value = match.group("name", "value")
        if name in labels:
            raise ValueError(f"label {name[:60]} occurs twice")
        if len(labels) == most:
            raise ValueError(f"more than {most} labels")
        labels[name] = _unescape(value, strict=True) if "\\" in value else value
        at = match.end()
    return labels


def _unescape(text: str, strict: bool) -> str:
    r"""Replace \\, \n and, in label values, \". A HELP line may have other backslashes, which stay."""

    def unescaped(match: re.Match[str]) -> str:
        known = _ESCAPED if strict else {"\\": "\\", "n": "\n"}
        if match[1] not in known and strict:
            raise ValueError(f'{match[0]!r} is not an escape; the escapes are \\\\, \\n and \\"')
        return known.get(match[1], match[0])

    return _ESCAPE.sub(unescaped, text)


def _diagnosis(line: str) -> str:
    """Why a line is not a sample."""
    name = re.match(_NAME, line)
    if name is None:
        return f"{line[:60]!r} does not begin with a metric name"
    rest = line[name.end() :].lstrip(" \t")
    if rest.startswith("{"):
        closed = re.match(rf'\{{[^"}}]*(?:{_QUOTED}[^"}}]*)*\}}', rest)
        if closed is None:
            return f"the labels of {name[0][:60]} are not closed"
        rest = rest[closed.end() :]
    words = rest.split()
    if not words:
        return f"{name[0][:60]} has no value"
    if re.fullmatch(NUMBER, words[0]) is None:
        return f"the value of {name[0][:60]} is not a number: {words[0][:60]!r}"
    return f"after the value of {name[0][:60]} there is {' '.join(words[1:])[:60]!r}"
