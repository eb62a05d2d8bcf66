"""A text with a header and a separator -> batches of its columns as words, each row with its line number.

Arrow reads the text batch by batch. A line with too many or too few fields goes to a repair function.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from clustertwin.core.errors import TraceError
from clustertwin.workload.formats.parsing.byte_stream import Progress, RecodedStream, blocks, head, open_bytes
from clustertwin.workload.formats.parsing.findings import LogFindings

#: (line, text, expected fields) -> the fields of a line that does not fit the header, or None if it cannot be repaired.
RepairLine = Callable[[int, str, int], list[str] | None]


#: Lines with the wrong number of fields that are kept for repair, each with its text and this many bytes more. They
#: are reported at the end of the file, so a few kilobytes of gzip could fill the memory first.
MOST_MISFIT_BYTES, MISFIT_BYTES = 512 << 20, 250


class _Misfit(NamedTuple):
    """A line with the wrong number of fields."""

    line: int
    text: str
    fields: int


def header_of(path: Path, delimiter: str) -> list[str]:
    """The names in the first line."""
    first = head(path).partition(b"\n")[0].decode("utf-8-sig", errors="replace").strip("\r")
    return [name.strip().strip('"') for name in first.split(delimiter)]


@dataclass(frozen=True, slots=True)
class DelimitedBatch:
    """Some rows: columns of words, and the line number of each row."""

    words: dict[str, Any]  # name -> pyarrow.Array of strings
    lines: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.lines)

    def numbers(self, name: str, findings: LogFindings) -> NDArray[np.float64]:
        """A column of numbers. Empty cells become nan; other words are faults and become nan."""
        words = pc.utf8_trim_whitespace(self.words[name])
        words = pc.if_else(pc.equal(words, ""), pa.scalar(None, pa.string()), words)
        try:
            return np.asarray(words.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
        except pa.ArrowInvalid:
            return self.parsed(name, float, findings)

    def parsed(self, name: str, parse: Callable[[str], float], findings: LogFindings) -> NDArray[np.float64]:
        """A column through `parse`, called once per distinct word. A refused word is a fault, and the value is nan."""
        encoded = self.words[name].dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        values = np.full(len(distinct), np.nan)
        reasons: dict[int, str] = {}  # of the words that are faults
        for code, word in enumerate(distinct):
            if not word.strip():
                continue
            try:
                values[code] = parse(word)
            except (ValueError, OverflowError) as error:  # an infinite number has no integer
                reasons[code] = f"{name} is {word!r}: {error if parse is not float else 'not a number'}"
        for i in np.flatnonzero(np.isin(codes, list(reasons))):
            findings.repair(int(self.lines[i]), reasons[int(codes[i])], "treated as unknown")
        return values[codes]


def first_positive(*sources: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each row, the value of the first source that is positive; -1 if there is none.

    >>> first_positive(np.array([np.nan, 2.0, 0.0]), np.array([5.0, 6.0, 0.0])).tolist()
    [5.0, 2.0, -1.0]
    """
    value = np.full(len(sources[0]), -1.0)
    for source in reversed(sources):
        value = np.where(source > 0, source, value)
    return value


def read_batches(
    path: Path,
    delimiter: str,
    wanted: Sequence[str],
    findings: LogFindings,
    progress: Progress | None = None,
    quotes: bool = True,
    repair: RepairLine | None = None,
    names: Sequence[str] | None = None,
) -> Iterator[DelimitedBatch]:
    """The wanted columns, batch by batch. Repaired lines come in a last batch of their own.

    `names` replaces the header.
    """
    names = list(names) if names else _once(header_of(path, delimiter), findings)
    wanted = list(dict.fromkeys(wanted))
    misfits: list[_Misfit] = []
    kept_bytes = 0

    def skip(row: Any) -> str:
        nonlocal kept_bytes
        kept_bytes += len(row.text) + MISFIT_BYTES
        if kept_bytes > MOST_MISFIT_BYTES:
            return "error"
        misfits.append(_Misfit(row.number, row.text, row.actual_columns))
        return "skip"

    # Empty lines are counted; without them Arrow's row numbers would differ from the file's line numbers.
    parse = csv.ParseOptions(delimiter=delimiter, quote_char='"' if quotes else False, ignore_empty_lines=False,
                             invalid_row_handler=skip)  # fmt: skip
    convert = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), include_columns=list(wanted),
                                 strings_can_be_null=False)  # fmt: skip
    options = csv.ReadOptions(use_threads=False, block_size=1 << 22, column_names=names, skip_rows=1)
    next_line, counted = 2, 0
    # Arrow loses a line of another length if it is not UTF-8.
    with RecodedStream(open_bytes(path, progress), path, "UTF-8", replace=True) as recoded:
        stream = io.BufferedReader(recoded, buffer_size=1 << 20)
        try:
            for batch in csv.open_csv(stream, options, parse, convert):
                lines, next_line = _line_numbers(batch.num_rows, next_line, misfits[counted:])
                counted = len(misfits)
                yield _without_empty_lines(DelimitedBatch({name: batch.column(name) for name in wanted}, lines))
        except pa.ArrowInvalid as error:
            if kept_bytes > MOST_MISFIT_BYTES:
                line, _, fields = misfits[0]
                reason = (
                    f"{fields} fields, but the first line has {len(names)} (and {len(misfits) - 1:,} more such lines)"
                )
                raise TraceError(path, reason, line) from error
            for _ in blocks(path):  # names the line, if one is too long
                pass
            reason = f"cannot parse the file as a table with the columns of its first line: {error}"
            raise TraceError(path, reason) from error
        if recoded.replaced:
            findings.note(None, "some bytes are not UTF-8; they are shown as \ufffd")
    yield from _repaired(misfits, names, wanted, findings, repair)


def _once(names: list[str], findings: LogFindings) -> list[str]:
    """The names of the columns; the second column of a name gets another one, so the first is read."""
    seen: set[str] = set()
    for place, name in enumerate(names):
        if name in seen:
            findings.note(1, f"the column {name[:60]!r} occurs twice; the first is read")
            names[place] = f"{name} in column {place + 1}"
        seen.add(name)
    return names


def _without_empty_lines(batch: DelimitedBatch) -> DelimitedBatch:
    """Arrow turns an empty line into a row of empty cells."""
    full = np.zeros(len(batch), dtype=bool)
    for column in batch.words.values():
        full |= pc.not_equal(column, "").to_numpy(zero_copy_only=False)
    if full.all():
        return batch
    return DelimitedBatch({name: column.filter(full) for name, column in batch.words.items()}, batch.lines[full])


def _line_numbers(rows: int, next_line: int, misfits: list[_Misfit]) -> tuple[NDArray[np.int64], int]:
    """The line numbers of the rows that fit, and the line after the batch."""
    end = next_line + rows + len(misfits)
    lines = np.arange(next_line, end)
    return lines[~np.isin(lines, [misfit.line for misfit in misfits])], end


def _repaired(
    misfits: list[_Misfit], names: list[str], wanted: Sequence[str], findings: LogFindings, repair: RepairLine | None
) -> Iterator[DelimitedBatch]:
    repaired: list[tuple[int, list[str]]] = []
    for line, text, fields in misfits:
        if not text.strip():
            continue
        cells = repair(line, text, len(names)) if repair else None
        if cells is not None:
            repaired.append((line, cells))
        else:
            findings.drop(line, f"{fields} fields, but the first line has {len(names)}")
    if repaired:
        place = {name: names.index(name) for name in wanted}
        words = {name: pa.array([cells[i] for _, cells in repaired], pa.string()) for name, i in place.items()}
        yield DelimitedBatch(words, np.array([line for line, _ in repaired], dtype=np.int64))
