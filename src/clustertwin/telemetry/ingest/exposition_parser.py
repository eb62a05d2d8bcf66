"""Parse exposition text, whoever wrote it: the bytes of a /metrics page -> samples, types and helps.

The grammar is Prometheus's text format 0.0.4, with the leftovers of OpenMetrics that real exporters emit
(UNIT, EOF, exemplars, timestamps in seconds). Anything else is an `ExpositionError` that names the line:
the text comes from the network, so size, line length, labels and samples are capped. For the second and later
scrapes of one target see `rescan`, which is a hundred times faster.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from clustertwin.core.errors import ExpositionError


@dataclass(frozen=True, slots=True)
class Limits:
    """What a page may be at most; ten times what a node with 512 threads and a thousand jobs needs."""

    text_bytes: int = 32 << 20
    line_chars: int = 16 << 10
    labels: int = 64
    samples: int = 500_000


class Sample(NamedTuple):
    """One line's value; `time_s` only where the page carries timestamps of its own."""

    name: str
    labels: dict[str, str]
    value: float
    time_s: float | None = None


@dataclass(frozen=True, slots=True)
class Exposition:
    """A page: its samples in order, and what it says of each metric."""

    samples: tuple[Sample, ...]
    types: dict[str, str]
    helps: dict[str, str]


_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r"[a-zA-Z_][a-zA-Z0-9_]*"
_QUOTED = r'"[^"\\]*(?:\\.[^"\\]*)*"'
#: Python's float() takes more (1_000, ٣): what it takes of this is what Prometheus takes.
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


def parse(text: bytes, where: object = "exposition", limits: Limits | None = None) -> Exposition:
    """A whole page, or an `ExpositionError` with `where`, the line and the reason."""
    limits = limits or Limits()
    if len(text) > limits.text_bytes:
        raise ExpositionError(where, f"{len(text)} bytes, at most {limits.text_bytes} are read")
    samples: list[Sample] = []
    types: dict[str, str] = {}
    helps: dict[str, str] = {}
    seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    lines = _lines(text, where)
    # OpenMetrics ends with EOF and counts time in seconds; the older format counts milliseconds.
    per_s = 1.0 if lines and lines[-1] == "# EOF" else 1000.0
    for at, line in enumerate(lines, 1):
        try:
            if len(line) > limits.line_chars:
                raise ValueError(f"{len(line)} characters, a line has at most {limits.line_chars}")
            line = line.strip(" \t")
            if not line:
                continue
            if line.startswith("#"):
                _comment(line, types, helps)
                continue
            sample = _sample(line, per_s, limits.labels)
            series = sample.name, frozenset(sample.labels.items())
            if series in seen:
                raise ValueError(f"{sample.name} with the same labels again")
            seen.add(series)
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
    """Note what a HELP or TYPE line says; every other comment is only a comment."""
    match = _COMMENT.fullmatch(line)
    if match is None:
        if line.split(maxsplit=2)[1:2] in (["HELP"], ["TYPE"]):
            raise ValueError(f"{line[:60]!r} names no metric")
        return
    name, rest = match["name"], (match["rest"] or "").strip(" \t")
    if match["word"] == "HELP":
        helps[name] = _unescape(rest, strict=False)
    elif rest not in _TYPES:
        raise ValueError(f"no type {rest[:60]!r}; there are {', '.join(_TYPES)}")
    elif types.setdefault(name, rest) != rest:
        raise ValueError(f"{name} was a {types[name]} before, now a {rest}")


def _sample(line: str, per_s: float, most_labels: int) -> Sample:
    match = _SAMPLE.fullmatch(line)
    if match is None:
        raise ValueError(_diagnosis(line))
    name, body, value, time = match.group("name", "labels", "value", "time")
    labels = _labels(body, most_labels) if body else {}
    return Sample(name, labels, float(value), None if time is None else float(time) / per_s)


def _labels(body: str, most: int) -> dict[str, str]:
    """The inside of the braces -> name -> value."""
    labels: dict[str, str] = {}
    at, end = 0, len(body.rstrip(" \t"))
    while at < end:
        match = _PAIR.match(body, at)
        if match is None:
            raise ValueError(f'{body[at : at + 60]!r} is not a label="value"')
        name, value = match.group("name", "value")
        if name in labels:
            raise ValueError(f"label {name[:60]} twice")
        if len(labels) == most:
            raise ValueError(f"more than {most} labels")
        labels[name] = _unescape(value, strict=True) if "\\" in value else value
        at = match.end()
    return labels


def _unescape(text: str, strict: bool) -> str:
    r"""\\, \n and, in label values, \" stand for one character; a HELP line keeps what is none of these."""

    def plain(match: re.Match[str]) -> str:
        known = _ESCAPED if strict else {"\\": "\\", "n": "\n"}
        if match[1] not in known and strict:
            raise ValueError(f'no escape {match[0]!r}; there are \\\\, \\n and \\"')
        return known.get(match[1], match[0])

    return _ESCAPE.sub(plain, text)


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
        return f"the value of {name[0][:60]} is no number: {words[0][:60]!r}"
    return f"after the value of {name[0][:60]} there is {' '.join(words[1:])[:60]!r}"
