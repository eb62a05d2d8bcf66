"""The bytes of a log, plain or gzip: path -> one stream, or blocks of complete lines, with progress.

Nothing is read whole: a log may be larger than memory, and a line longer than `LONGEST_LINE` is refused.
"""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from clustertwin.core.errors import TraceError
from clustertwin.core.foreign_files import open_regular

#: Called after every block with the number of bytes read from the file, before unpacking.
Progress = Callable[[int], None]

GZIP_MAGIC = b"\x1f\x8b"
UTF8_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
#: Bytes. The longest line of a log that we know, with a SubmitLine of Slurm, has a few thousand.
LONGEST_LINE = 1 << 22


class _ProgressFile(io.RawIOBase):
    """A file that reports its position. Below gzip it counts compressed bytes, like the file's size."""

    def __init__(self, path: Path, progress: Progress) -> None:
        self._file, self._progress = open(open_regular(path), "rb"), progress  # noqa: SIM115 - closed by close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        n = self._file.readinto(buffer)
        self._progress(self._file.tell())
        return n

    def close(self) -> None:
        self._file.close()
        super().close()


class RecodedStream(io.RawIOBase):
    """A text as UTF-8, piece by piece. Bytes that are not text are an error, or with `replace` become U+FFFD."""

    def __init__(self, stream: BinaryIO, path: Path, encoding: str, replace: bool = False) -> None:
        self._stream, self._path, self._encoding, self._rest = stream, path, encoding, b""
        self._decoder = codecs.getincrementaldecoder(encoding)("replace" if replace else "strict")
        self._ended = False
        self.replaced = False  # whether some bytes were not text

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest and not self._ended:
            piece = _read(self._stream, 1 << 16, self._path)
            self._ended = not piece
            try:
                text = self._decoder.decode(piece, final=self._ended)
                self._rest = text.encode("utf-8", "replace")
            except UnicodeDecodeError as error:
                reason = f"the file begins like {self._encoding} text and is damaged: {error.reason}"
                raise TraceError(self._path, reason) from error
            self.replaced |= "\ufffd" in text and b"\xef\xbf\xbd" not in piece
        taken, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)

    def close(self) -> None:
        self._stream.close()
        super().close()


def open_bytes(path: Path, progress: Progress | None = None) -> BinaryIO:
    """The content of a file. Gzip and UTF-16 are recognised by the first bytes, not by the file name.

    UTF-16 text comes as UTF-8, and a byte-order mark is left out.
    """
    try:
        raw = io.BufferedReader(_ProgressFile(path, progress or (lambda position: None)), buffer_size=1 << 20)
        packed = raw.peek(2)[:2] == GZIP_MAGIC
    except OSError as error:
        raise TraceError(path, error.strerror or str(error)) from error
    stream = io.BufferedReader(gzip.GzipFile(fileobj=raw), buffer_size=1 << 20) if packed else raw
    try:
        start = stream.peek(3)[:3]
    except (OSError, EOFError, zlib.error):  # damaged gzip data: the first read reports it
        start = b""
    if start == UTF8_MARK:
        stream.read(len(UTF8_MARK))
    elif start[:2] in UTF16_MARKS:
        recoded = RecodedStream(cast(BinaryIO, stream), path, "UTF-16")
        return cast(BinaryIO, io.BufferedReader(recoded, buffer_size=1 << 20))
    return cast(BinaryIO, stream)


def is_utf16(path: Path) -> bool:
    """Whether a plain file begins with the byte-order mark of UTF-16."""
    try:
        with open(open_regular(path), "rb") as file:
            return file.read(2) in UTF16_MARKS
    except OSError:  # the reader reports it
        return False


def head(path: Path, size: int = 1 << 16) -> bytes:
    """The first bytes, from which the format is detected."""
    with open_bytes(path) as stream:
        return _read(stream, size, path)


def blocks(path: Path, size: int = 1 << 22, progress: Progress | None = None) -> Iterator[bytes]:
    """Blocks of complete lines, about `size` bytes each. A line that is too long is an error with its number."""
    with open_bytes(path, progress) as stream:
        rest, lines = b"", 0
        while block := _read(stream, size, path):
            cut = block.rfind(b"\n") + 1
            # Within a block no line is longer than the block: only the first can be too long.
            if len(rest) + (block.find(b"\n") if cut else len(block)) > max(size, LONGEST_LINE):
                raise TraceError(path, f"the line is longer than {max(size, LONGEST_LINE):,} bytes", lines + 1)
            if cut:
                yield rest + block[:cut]
                lines += block.count(b"\n")
                rest = block[cut:]
            else:
                rest += block
        if rest:
            yield rest


def _read(stream: BinaryIO, size: int, path: Path) -> bytes:
    try:
        return stream.read(size)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(path, f"the gzip data is damaged: {error}") from error
    except OSError as error:
        raise TraceError(path, error.strerror or str(error)) from error
