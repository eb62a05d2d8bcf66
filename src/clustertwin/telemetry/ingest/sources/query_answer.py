"""The answer of Prometheus to a query of raw samples: JSON -> series, one after the other, within limits.

A document is many times larger as Python objects than as text, and while it is parsed no other thread runs. So a long
answer is scanned by compiled code (`matrix_scan`), and the labels are parsed only if they differ from those of the
answer before. If it has another form than usual, it is cut into its rows, which is exact: inside a JSON string the
quotes of `{"metric":{` would be escaped. Only a short answer is parsed as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from clustertwin.core.errors import SourceError
from clustertwin.core.formatting import visible
from clustertwin.telemetry.ingest.counters import NAME_CHARS
from clustertwin.telemetry.ingest.sources.matrix_scan import ScannedRows, same_texts, scan_rows

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


Labels = dict[str, str]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MatrixAnswer(Generic[T]):
    """The series of an answer, their samples one after the other."""

    labels: T  # what was made of the labels of all series
    first: NDArray[np.int64]  # (series + 1,) the first sample of each
    times_s: NDArray[np.float64]
    values: NDArray[np.float64]

    def between(self, begin_s: float, end_s: float) -> MatrixAnswer[T]:
        """The samples with begin_s <= time < end_s."""
        inside = (self.times_s >= begin_s) & (self.times_s < end_s)
        if inside.all():
            return self
        first = np.concatenate([[0], np.cumsum(inside)])[self.first]
        return MatrixAnswer(self.labels, first, self.times_s[inside], self.values[inside])


@dataclass(frozen=True, slots=True)
class Series:
    """The raw samples of one series, in time order."""

    labels: Labels
    times_s: NDArray[np.float64]
    values: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Source:
    """Where an answer comes from, its limits, and where series that are left out are named."""

    url: str
    limits: AnswerLimits
    refused: dict[str, str] | None


class TooManySeries(SourceError):
    """All instances together have more series than an answer may have."""


class SeriesRefused(SourceError):
    """One series is over a limit. Its exporter made it, so the other series of the answer can be used."""


class LabelReader(Generic[T]):
    """Makes something of the labels of an answer. The next answer usually has the same labels, and nothing is made."""

    def __init__(self, make: Callable[[Sequence[Labels | None]], T]) -> None:
        self._make = make
        self._made: tuple[NDArray[np.uint8], NDArray[np.int64], dict[str, str], T] | None = None

    def of(self, labels: Sequence[Labels | None]) -> T:
        return self._make(labels)

    def read(self, body: bytes, scanned: ScannedRows, source: _Source) -> T:
        begins, ends = np.ascontiguousarray(scanned.places[:, 1]), np.ascontiguousarray(scanned.places[:, 2])
        text = np.frombuffer(body, np.uint8)
        if self._made is not None and len(self._made[1]) == len(begins) + 1:
            known, offsets, refused, made = self._made
            if same_texts(text, begins, ends, known, offsets):
                if source.refused is not None:
                    source.refused.update(refused)
                return made
        pieces = [body[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        newly: dict[str, str] | None = None if source.refused is None else {}
        made = self._make(_all_labels(pieces, replace(source, refused=newly)))
        if source.refused is not None and newly is not None:
            source.refused.update(newly)
        offsets = np.concatenate([[0], np.cumsum(ends - begins)])
        self._made = np.frombuffer(b"".join(pieces), np.uint8), offsets, newly or {}, made
        return made


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
    return series_of(read_answer(body, url, query, LabelReader(list), limits, refused))


def series_of(answer: MatrixAnswer[list[Labels | None]]) -> list[Series]:
    """The series of an answer, without those that were refused."""
    spans = zip(answer.labels, answer.first.tolist(), answer.first[1:].tolist(), strict=False)
    return [Series(labels, answer.times_s[a:b], answer.values[a:b]) for labels, a, b in spans if labels is not None]


def read_answer(
    body: bytes,
    url: str,
    query: str,
    labels: LabelReader[T],
    limits: AnswerLimits = AnswerLimits(),
    refused: dict[str, str] | None = None,
) -> MatrixAnswer[T]:
    """As `parse_answer`, with all samples in two arrays."""
    source = _Source(url, limits, refused)
    first = body.find(_ROW)
    if first < 0 or len(body) <= limits.whole_bytes:
        _check(len(body), limits.whole_bytes, "bytes without a series", url)
        rows = _rows(body, url, query)
        return _joined([series for row in rows if (series := _series(row, source)) is not None], labels)
    count = body.count(_ROW)
    if count > limits.series:
        raise TooManySeries(f"{url}: {count} series; the limit is {limits.series}")
    end = _end_of_row(body, body.rfind(_ROW))
    _check(first + len(body) - end, limits.around_bytes, "bytes around the series", url)
    rest = _rows(body[:first] + body[end:], url, query)
    if rest:
        raise SourceError(f"{url}: does not answer like Prometheus")
    scanned = scan_rows(body, first, end, count)
    if scanned is not None:
        _check(int((scanned.places[:, 3] - scanned.places[:, 0]).max()), limits.row_bytes, "bytes in one series", url)
        made = labels.read(body, scanned, source)
        _fill_odd_rows(body, scanned, source)
        return MatrixAnswer(made, scanned.first, scanned.times_s, scanned.values)
    texts = _cut(body, first, end, url, limits)
    found = (series for text in texts if (series := _parse_row(text, source)) is not None)
    return _joined(list(_within(found, source)), labels)


def _joined(found: list[Series], labels: LabelReader[T]) -> MatrixAnswer[T]:
    first = np.concatenate([[0], np.cumsum([len(series.times_s) for series in found])]).astype(np.int64)
    nothing = [np.zeros(0)]
    return MatrixAnswer(
        labels.of([series.labels for series in found]),
        first,
        np.concatenate([series.times_s for series in found] or nothing),
        np.concatenate([series.values for series in found] or nothing),
    )


def _all_labels(pieces: list[bytes], source: _Source) -> list[Labels | None]:
    """The labels of each series; None if it is refused."""
    counts: Counter[str] = Counter()
    return [_within_instance(_labels(piece, source), counts, source) for piece in pieces]


def _labels(piece: bytes, source: _Source) -> Labels | None:
    try:
        labels = orjson.loads(b"{" + piece + b"}")
    except orjson.JSONDecodeError:
        raise SourceError(f"{source.url}: not a series: {piece[:120]!r}") from None
    if not set(map(type, labels.values())) <= _TEXT:
        raise SourceError(f"{source.url}: not a series: {str(labels)[:120]}")
    return labels if _are_short(labels, source) else None


def _fill_odd_rows(body: bytes, scanned: ScannedRows, source: _Source) -> None:
    """The numbers of rows that need a JSON parser."""
    for row in np.flatnonzero(scanned.is_odd).tolist():
        series = _parse_row(body[scanned.places[row, 0] : scanned.places[row, 3]], source)
        begin, end = scanned.first[row], scanned.first[row + 1]
        if series is None:  # refused for its labels
            continue
        if len(series.times_s) != end - begin:
            raise SourceError(f"{source.url}: not a series: {body[scanned.places[row, 0] :][:120]!r}")
        scanned.times_s[begin:end], scanned.values[begin:end] = series.times_s, series.values


def _within(found: Iterator[Series], source: _Source) -> Iterator[Series]:
    """The series of instances that have no more of them than a node can have. The others are left out and named."""
    counts: Counter[str] = Counter()
    return (series for series in found if _within_instance(series.labels, counts, source) is not None)


def _within_instance(labels: Labels | None, counts: Counter[str], source: _Source) -> Labels | None:
    if labels is None:
        return None
    instance, limits = labels.get("instance", ""), source.limits
    counts[instance] += 1
    if len(counts) > limits.instances:
        raise SourceError(f"{source.url}: more than {limits.instances} instances, which is the limit")
    if counts[instance] <= limits.instance_series:
        return labels
    if counts[instance] == limits.instance_series + 1:
        _refuse(instance, f"more than {limits.instance_series} series, which is the limit", source)
    return None


def _refuse(instance: str, reason: str, source: _Source) -> None:
    if source.refused is None:
        raise SeriesRefused(f"{source.url}: {reason}")
    instance = instance[:NAME_CHARS]
    if instance in source.refused or len(source.refused) < MOST_REFUSED:
        source.refused[instance] = f"{source.url}: {visible(instance)}: {reason}"


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


def _parse_row(text: bytes, source: _Source) -> Series | None:
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise SourceError(f"{source.url}: not a series: {text[:120]!r}") from None
    return _series(row, source)


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


def _series(row: Any, source: _Source) -> Series | None:
    """One row of a result, checked; None if it was refused alone."""
    try:
        times, values = zip(*row["values"], strict=True) if row["values"] else ((), ())
        series = Series(row["metric"], np.array(times, dtype=np.float64), np.array(values, dtype=np.float64))
        texts = series.labels.values()
        if set(map(type, texts)) <= _TEXT and series.times_s.ndim == series.values.ndim == 1:
            return series if _are_short(series.labels, source) else None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        pass
    raise SourceError(f"{source.url}: not a series: {str(row)[:120]}")


def _are_short(labels: Labels, source: _Source) -> bool:
    limits, longest = source.limits, max(map(len, labels.values()), default=0)
    if len(labels) <= limits.labels and longest <= limits.label_chars:
        return True
    reason = (
        f"{len(labels)} labels of a series; the limit is {limits.labels}"
        if len(labels) > limits.labels
        else f"{longest} characters in a label; the limit is {limits.label_chars}"
    )
    _refuse(labels.get("instance", ""), reason, source)
    return False


def _check(count: int, most: int, what: str, url: str) -> None:
    if count > most:
        raise SourceError(f"{url}: {count} {what}; the limit is {most}")
