"""Parse the pages of one target: bytes -> its series once, then only their values.

A target repeats the same lines in the same order; only the numbers change. The first page is parsed in full, and
everything but its numbers becomes a template. The next page is compared with the template byte by byte, and its
numbers are read on the way. If it differs from the template by a single byte, it is parsed in full again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clustertwin.core.compiled import compiled
from clustertwin.telemetry.ingest.exposition_parser import NUMBER, Exposition, ExpositionLimits, MetricSample, parse

_NUMBER = re.compile(NUMBER.encode())
_TENS = 10.0 ** np.arange(23)  # exact in float64, so m * ten and m / ten are rounded only once, for m up to 2**53
_DIFFERS = -1


@compiled
def _scan(text, words, fixed, fixed_words, ends, values, slow):  # type: ignore[no-untyped-def]
    """Numbers between the fixed parts -> values (series,). Returns how many are left in `slow` (series, start, end).

    `words[i]` are the eight bytes from i on. The text ends with a newline, which ends every loop over digits.
    """
    at = n_slow = begin = 0
    for i in range(len(values)):
        length = ends[i] - begin
        if at + length >= len(text):
            return _DIFFERS
        if length < 8:
            for j in range(length):
                if text[at + j] != fixed[begin + j]:
                    return _DIFFERS
        else:
            for j in range(0, length - 8, 8):
                if words[at + j] != fixed_words[begin + j]:
                    return _DIFFERS
            if words[at + length - 8] != fixed_words[begin + length - 8]:
                return _DIFFERS
        at += length
        begin = ends[i]

        start = at
        negative = text[at] == 45  # -
        at += negative
        mantissa, scale, first = 0, 0, at
        while text[at] - 48 <= 9 and text[at] >= 48:
            mantissa = mantissa * 10 + text[at] - 48
            at += 1
        digits = at - first
        if text[at] == 46:  # .
            at += 1
            first = at
            while text[at] - 48 <= 9 and text[at] >= 48:
                mantissa = mantissa * 10 + text[at] - 48
                at += 1
            scale = first - at
            digits -= scale
        if text[at] == 101 or text[at] == 69:  # e, E
            down = text[at + 1] == 45
            at += 2 if down or text[at + 1] == 43 else 1
            first, exponent = at, 0
            while text[at] - 48 <= 9 and text[at] >= 48:
                exponent = min(exponent * 10 + text[at] - 48, 10_000)
                at += 1
            scale += -exponent if down else exponent
            if at == first:
                digits = 0  # there is no exponent after the e
        if 0 < digits <= 18 and text[at] == 10 and mantissa <= 1 << 53 and -22 <= scale <= 22:
            value = mantissa / _TENS[-scale] if scale < 0 else mantissa * _TENS[scale]
            values[i] = -value if negative else value
        else:
            while text[at] != 10:
                at += 1
            slow[n_slow, 0], slow[n_slow, 1], slow[n_slow, 2] = i, start, at
            n_slow += 1
    if len(text) - at != len(fixed) - begin:
        return _DIFFERS
    for j in range(len(fixed) - begin):
        if text[at + j] != fixed[begin + j]:
            return _DIFFERS
    return n_slow


def _words(text: bytes) -> NDArray[np.uint64]:
    """The eight bytes from each position of a text on, as a view."""
    return np.ndarray((max(len(text) - 7, 0),), np.uint64, text, strides=(1,))


@dataclass(frozen=True, slots=True)
class _Template:
    """A page without its numbers: `fixed[ends[i-1]:ends[i]]` precedes number i, the rest follows the last number."""

    fixed: bytes
    ends: NDArray[np.int64]  # (series,)


def _template(text: bytes, page: Exposition) -> _Template | None:
    """The template of a parsed page; None if it has timestamps, exemplars or an unusual layout."""
    fixed, ends, size = [], [], 0
    begin = at = 0
    for line in text.splitlines(keepends=True):
        end = at + len(line)
        if line.strip() and not line.lstrip().startswith(b"#"):
            space = text.rfind(b" ", at, end) + 1
            if space <= at or b"# {" in line or not line.endswith(b"\n") or not _NUMBER.fullmatch(text, space, end - 1):
                return None
            fixed.append(text[begin:space])
            size += space - begin
            ends.append(size)
            begin = end - 1
        at = end
    if len(ends) != len(page.samples) or any(sample.time_s is not None for sample in page.samples):
        return None
    fixed.append(text[begin:])
    return _Template(b"".join(fixed), np.array(ends, dtype=np.int64))


class IncrementalParser:
    """The pages of one target. `series` is a new tuple whenever the lines of the target have changed."""

    def __init__(self, where: object = "exposition", limits: ExpositionLimits | None = None) -> None:
        self.where, self.limits = where, limits or ExpositionLimits()
        self.series: tuple[MetricSample, ...] = ()
        self._template: _Template | None = None

    def read(self, text: bytes) -> NDArray[np.float64]:
        """The value of each of `series`; ExpositionError if the page is not exposition text."""
        if self._template is not None and text.endswith(b"\n"):
            values = self._reread(text, self._template)
            if values is not None:
                return values
        page = parse(text, self.where, self.limits)
        self.series, self._template = page.samples, _template(text, page)
        return np.array([sample.value for sample in page.samples], dtype=np.float64)

    def _reread(self, text: bytes, template: _Template) -> NDArray[np.float64] | None:
        """The values, or None if this page does not match the template."""
        values = np.empty(len(template.ends))
        slow = np.empty((len(values), 3), dtype=np.int64)
        n_slow = _scan(
            np.frombuffer(text, np.uint8),
            _words(text),
            np.frombuffer(template.fixed, np.uint8),
            _words(template.fixed),
            template.ends,
            values,
            slow,
        )
        if n_slow == _DIFFERS:
            return None
        for i, start, end in slow[:n_slow].tolist():
            if _NUMBER.fullmatch(text, start, end) is None:
                return None
            values[i] = float(text[start:end])
        return values
