"""Write Prometheus's text format: names, label values and texts -> the bytes of families and samples.

Numbers are written as the kernel's own integers with a decimal exponent (`1234e-2` seconds for 1,234
ticks). It is the same number to every parser of the format, and costs an eighth of writing decimals.
"""

from __future__ import annotations

import re

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_UNESCAPE = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


def family(name: str, kind: str, text: str) -> bytes:
    """The two lines before a family's samples; `kind` is counter or gauge."""
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n".encode()


def label_value(name: str) -> str:
    """A name from the kernel as the inside of a label's quotes; bytes that are no UTF-8 become `\\xNN`."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def template_text(text: str) -> bytes:
    """Text that goes unchanged through a `%` template."""
    return text.replace("%", "%%").encode()


def to_rows(text: str) -> list[dict[str, object]]:
    """What this module wrote, as rows of name, labels and value: for `--json`."""
    rows: list[dict[str, object]] = []
    for line in text.split("\n"):
        if match := _SAMPLE.fullmatch(line):
            name, labels, value = match.groups()
            pairs = {key: re.sub(r"\\.", lambda m: _UNESCAPE[m[0]], raw) for key, raw in _LABEL.findall(labels or "")}
            rows.append({"name": name, "labels": pairs, "value": float(value)})
    return rows
