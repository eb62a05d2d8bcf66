"""The answer of Prometheus to a query of raw samples: JSON -> series, one after the other, within limits.

A document is many times larger as Python objects than as text, and while it is parsed no other thread runs. So a long
answer is cut into its rows, which is exact: inside a JSON string the quotes of `{"metric":{` would be escaped. Each row
is parsed and becomes two arrays before the next. Only a short answer is parsed as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from clustertwin.core.errors import SourceError
from clustertwin.telemetry.ingest.counters import NAME_CHARS, visible

_ROW = b'{"metric":{'
_VALUES = b'"values":['
_ROW_END = b"]}"
_TEXT = {str}
#: Instances that are named because they are left out.
MOST_REFUSED = 1000


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """The limits of an answer, checked before a row is parsed."""

    series: int = 1_200_000  # 100,000 threads with 8 modes, and half of that again; each takes about a kilobyte
    instance_series: int = 1 << 17  # 8,192 threads with 8 modes, twice
    instances: int = 20_000  # more nodes than one service can watch
    row_bytes: int = 1 << 20  # Prometheus returns at most 11,000 points, of about 30 bytes
    whole_bytes: int = 1 << 20  # of an answer that is parsed as a whole
    around_bytes: int = 64 << 10  # before the first series and after the last: the status, and warnings
    labels: int = 64  # of a series, as in `ExpositionLimits`
    label_chars: int = 4096


@dataclass(frozen=True, slots=True)
class Series:
    """The raw samples of one series, in time order."""

    labels: dict[str, str]
    times_s: NDArray[np.float64]
    values: NDArray[np.float64]


class SeriesRefused(SourceError):
    """One series is over a limit. Its exporter made it, so the other series of the answer can be used."""


def parse_answer(
    body: bytes,
    url: str,
    query: str,
    limits: AnswerLimits = AnswerLimits(),
    refused: dict[str, str] | None = None,
) -> list[Series]:
    """The series of an answer; SourceError with the address and the reason if it is not one.

    With `refused`, a series with too many or too long labels is left out and named there, under its instance.
    """
    first = body.find(_ROW)
    if first < 0 or len(body) <= limits.whole_bytes:
        _check(len(body), limits.whole_bytes, "bytes without a series", url)
        rows = _rows(body, url, query)
        return [series for row in rows if (series := _series(row, url, limits, refused)) is not None]
    count = body.count(_ROW)
    _check(count, limits.series, "series", url)
    end = _end_of_row(body, body.rfind(_ROW))
    _check(first + len(body) - end, limits.around_bytes, "bytes around the series", url)
    rest = _rows(body[:first] + body[end:], url, query)
    if rest:
        raise SourceError(f"{url}: does not answer like Prometheus")
    texts = _cut(body, first, end, url, limits)
    found = (series for text in texts if (series := _parse_row(text, url, limits, refused)) is not None)
    return list(_within(found, url, limits, refused))


def _within(
    found: Iterator[Series], url: str, limits: AnswerLimits, refused: dict[str, str] | None
) -> Iterator[Series]:
    """The series of instances that have no more of them than a node can have. The others are left out and named."""
    counts: Counter[str] = Counter()
    for series in found:
        instance = series.labels.get("instance", "")
        counts[instance] += 1
        if len(counts) > limits.instances:
            raise SourceError(f"{url}: more than {limits.instances} instances, which is the limit")
        if counts[instance] <= limits.instance_series:
            yield series
        elif counts[instance] == limits.instance_series + 1:
            _refuse(instance, f"more than {limits.instance_series} series, which is the limit", url, refused)


def _refuse(instance: str, reason: str, url: str, refused: dict[str, str] | None) -> None:
    if refused is None:
        raise SeriesRefused(f"{url}: {reason}")
    instance = instance[:NAME_CHARS]
    if instance in refused or len(refused) < MOST_REFUSED:
        refused[instance] = f"{url}: {visible(instance)}: {reason}"


def _end_of_row(body: bytes, at: int) -> int:
    """Where the row that begins at `at` ends. Samples are numbers, so the first `]]}` after `"values":[` ends them."""
    values = body.find(_VALUES, at) + len(_VALUES)
    if values >= len(_VALUES) and body.startswith(_ROW_END, values):
        return values + len(_ROW_END)
    end = body.find(b"]" + _ROW_END, values) if values >= len(_VALUES) else -1
    return end + 1 + len(_ROW_END) if end >= 0 else len(body)


def _cut(body: bytes, at: int, end: int, url: str, limits: AnswerLimits) -> Iterator[bytes]:
    while at < end:
        following = body.find(_ROW, at + 1, end)
        stop = following if following >= 0 else end
        _check(stop - at, limits.row_bytes, "bytes in one series", url)
        yield body[at:stop].rstrip(b", \t\r\n")
        at = stop


def _parse_row(text: bytes, url: str, limits: AnswerLimits, refused: dict[str, str] | None) -> Series | None:
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise SourceError(f"{url}: not a series: {text[:120]!r}") from None
    return _series(row, url, limits, refused)


def _rows(text: bytes, url: str, query: str) -> list[Any]:
    """The rows of a whole document."""
    try:
        document = orjson.loads(text)
        if document["status"] != "success":
            raise SourceError(f"{url}: {query}: {str(document.get('error', 'no reason given'))[:500]}")
        kind, rows = document["data"]["resultType"], document["data"]["result"]
        if kind != "matrix" or not isinstance(rows, list):
            raise SourceError(f"{url}: {query}: the result is a {str(kind)[:60]}, not raw samples")
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        raise SourceError(f"{url}: does not answer like Prometheus") from None
    return rows


def _series(row: Any, url: str, limits: AnswerLimits, refused: dict[str, str] | None) -> Series | None:
    """One row of a result, checked; None if it was refused alone."""
    try:
        times, values = zip(*row["values"], strict=True) if row["values"] else ((), ())
        series = Series(row["metric"], np.array(times, dtype=np.float64), np.array(values, dtype=np.float64))
        texts = series.labels.values()
        if set(map(type, texts)) <= _TEXT and series.times_s.ndim == series.values.ndim == 1:
            longest = max(map(len, texts), default=0)
            if len(texts) <= limits.labels and longest <= limits.label_chars:
                return series
            reason = (
                f"{len(texts)} labels of a series; the limit is {limits.labels}"
                if len(texts) > limits.labels
                else f"{longest} characters in a label; the limit is {limits.label_chars}"
            )
            _refuse(series.labels.get("instance", ""), reason, url, refused)
            return None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        pass
    raise SourceError(f"{url}: not a series: {str(row)[:120]}")


def _check(count: int, most: int, what: str, url: str) -> None:
    if count > most:
        raise SourceError(f"{url}: {count} {what}; the limit is {most}")
