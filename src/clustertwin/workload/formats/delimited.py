"""A text with a header and a separator -> batches of its columns as words, each row with its line number.

Reads with Arrow, whole batches at once; a line with too many or too few fields is handed over instead of lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from clustertwin.core.errors import TraceError
from clustertwin.workload.formats.reading import Findings
from clustertwin.workload.formats.source import Progress, head, open_bytes

#: A line that does not fit the header: its fields, or None if it was beyond repair.
Mend = Callable[[int, str, int], list[str] | None]  # (line, text, expected fields)


def header_of(path: Path, delimiter: str) -> list[str]:
    """The names in the first line."""
    first = head(path).partition(b"\n")[0].decode("utf-8-sig", errors="replace").strip("\r")
    return [name.strip().strip('"') for name in first.split(delimiter)]


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows: columns of words, and the line each row stands on."""

    words: dict[str, Any]  # name -> pyarrow.Array of strings
    lines: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.lines)

    def numbers(self, name: str, findings: Findings) -> NDArray[np.float64]:
        """A column of numbers; empty cells are nan, other words are faults and become nan."""
        words = pc.utf8_trim_whitespace(self.words[name])
        words = pc.if_else(pc.equal(words, ""), pa.scalar(None, pa.string()), words)
        try:
            return np.asarray(words.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
        except pa.ArrowInvalid:
            return self.parsed(name, float, findings)

    def parsed(self, name: str, parse: Callable[[str], float], findings: Findings) -> NDArray[np.float64]:
        """A column through `parse`, called once for every distinct word; what it refuses is a fault and becomes nan."""
        encoded = self.words[name].dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        values = np.full(len(distinct), np.nan)
        for code, word in enumerate(distinct):
            if not word.strip():
                continue
            try:
                values[code] = parse(word)
            except ValueError as error:
                reason = str(error) if parse is not float else "not a number"
                for i in np.flatnonzero(codes == code):
                    findings.repair(int(self.lines[i]), f"{name} is {word!r}: {reason}", "taken as unknown")
        return values[codes]


def read_batches(
    path: Path,
    delimiter: str,
    wanted: Sequence[str],
    findings: Findings,
    progress: Progress | None = None,
    quotes: bool = True,
    mend: Mend | None = None,
) -> Iterator[Batch]:
    """The wanted columns, batch by batch; rows that `mend` saved come in a last batch of their own."""
    names = header_of(path, delimiter)
    misfits: list[tuple[int, str, int]] = []

    def misfit(row: Any) -> str:
        misfits.append((row.number, row.text, row.actual_columns))
        return "skip"

    # Empty lines count too: otherwise Arrow's row numbers are not the file's line numbers.
    parse = csv.ParseOptions(delimiter=delimiter, quote_char='"' if quotes else False, ignore_empty_lines=False,
                             invalid_row_handler=misfit)  # fmt: skip
    convert = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), include_columns=list(wanted),
                                 strings_can_be_null=False)  # fmt: skip
    options = csv.ReadOptions(use_threads=False, block_size=1 << 22, column_names=names, skip_rows=1)
    next_line, seen = 2, 0
    with open_bytes(path, progress) as stream:
        try:
            for batch in csv.open_csv(stream, options, parse, convert):
                lines, next_line = _number(batch.num_rows, next_line, misfits[seen:])
                seen = len(misfits)
                yield _without_empty_lines(Batch({name: batch.column(name) for name in wanted}, lines))
        except pa.ArrowInvalid as error:
            raise TraceError(path, f"not a table with the columns of its first line: {error}") from error
    yield from _mended(misfits, names, wanted, findings, mend)


def _without_empty_lines(batch: Batch) -> Batch:
    """Arrow makes a row of empty cells from an empty line."""
    full = np.zeros(len(batch), dtype=bool)
    for column in batch.words.values():
        full |= pc.not_equal(column, "").to_numpy(zero_copy_only=False)
    if full.all():
        return batch
    return Batch({name: column.filter(full) for name, column in batch.words.items()}, batch.lines[full])


def _number(rows: int, next_line: int, misfits: list[tuple[int, str, int]]) -> tuple[NDArray[np.int64], int]:
    """Line numbers of the rows that fitted: all lines of the batch but the misfits'."""
    last = next_line + rows + len(misfits)
    lines = np.arange(next_line, last)
    return lines[~np.isin(lines, [number for number, _, _ in misfits])], last


def _mended(
    misfits: list[tuple[int, str, int]], names: list[str], wanted: Sequence[str], findings: Findings, mend: Mend | None
) -> Iterator[Batch]:
    saved: list[tuple[int, list[str]]] = []
    for line, text, fields in misfits:
        if not text.strip():
            continue
        cells = mend(line, text, len(names)) if mend else None
        if cells is not None:
            saved.append((line, cells))
        else:
            findings.drop(line, f"{fields} fields, the first line has {len(names)}")
    if saved:
        place = {name: names.index(name) for name in wanted}
        words = {name: pa.array([cells[i] for _, cells in saved], pa.string()) for name, i in place.items()}
        yield Batch(words, np.array([line for line, _ in saved], dtype=np.int64))
