"""Write Prometheus's text format: names, label values and texts -> the bytes of families and samples.

Numbers are the kernel's own integers with a decimal exponent: 1,234 ticks are `1234e-2` seconds. Every parser of
the format reads this as 12.34, and writing it costs an eighth of writing decimals.
"""

from __future__ import annotations

import re

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SERIES = re.compile(r"(\w+)(?:\{(.*)\})?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_UNESCAPE = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


def family(name: str, kind: str, text: str) -> bytes:
    """The two lines before a family's samples; `kind` is counter or gauge."""
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n".encode()


def label_value(name: str) -> str:
    """A name from the kernel, escaped for the quotes of a label. Bytes that are not UTF-8 become `\\xNN`."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def template_text(text: str) -> bytes:
    """Text that a `%` template leaves unchanged."""
    return text.replace("%", "%%").encode()


def parse_series(text: str) -> tuple[str, dict[str, str]]:
    """A sample line without its value, as this module writes it -> the metric's name and its labels."""
    match = _SERIES.fullmatch(text)
    if match is None:
        raise ValueError(f"not a series: {text[:60]!r}")
    labels = {key: re.sub(r"\\.", lambda m: _UNESCAPE[m[0]], raw) for key, raw in _LABEL.findall(match[2] or "")}
    return match[1], labels


def to_rows(text: str) -> list[dict[str, object]]:
    """A page that this module wrote -> rows of name, labels and value, for `--json`."""
    rows: list[dict[str, object]] = []
    for line in text.split("\n"):
        if line and not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            name, labels = parse_series(series)
            rows.append({"name": name, "labels": labels, "value": float(value)})
    return rows
