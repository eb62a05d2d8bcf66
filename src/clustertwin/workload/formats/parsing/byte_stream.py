"""The bytes of a log, plain or gzip: path -> one stream, or blocks of complete lines, with progress."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from clustertwin.core.errors import TraceError

#: Called after every block with the number of bytes read from the file, before unpacking.
Progress = Callable[[int], None]

GZIP_MAGIC = b"\x1f\x8b"
UTF8_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class _ProgressFile(io.RawIOBase):
    """A file that reports its position. Below gzip it counts compressed bytes, like the file's size."""

    def __init__(self, path: Path, progress: Progress) -> None:
        self._file, self._progress = open(path, "rb"), progress  # noqa: SIM115 - closed by close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        n = self._file.readinto(buffer)
        self._progress(self._file.tell())
        return n

    def close(self) -> None:
        self._file.close()
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
    except (OSError, EOFError):  # damaged gzip data: the first read reports it
        start = b""
    if start == UTF8_MARK:
        stream.read(len(UTF8_MARK))
    elif start[:2] in UTF16_MARKS:
        try:
            return io.BytesIO(_read(cast(BinaryIO, stream), -1, path).decode("utf-16").encode())
        except UnicodeDecodeError as error:
            raise TraceError(path, f"the file begins like UTF-16 text and is damaged: {error.reason}") from error
    return cast(BinaryIO, stream)


def is_utf16(path: Path) -> bool:
    """Whether a plain file begins with the byte-order mark of UTF-16."""
    try:
        with open(path, "rb") as file:
            return file.read(2) in UTF16_MARKS
    except OSError:  # the reader reports it
        return False


def head(path: Path, size: int = 1 << 16) -> bytes:
    """The first bytes, from which the format is detected."""
    with open_bytes(path) as stream:
        return _read(stream, size, path)


def blocks(path: Path, size: int = 1 << 22, progress: Progress | None = None) -> Iterator[bytes]:
    """Blocks of complete lines, about `size` bytes each."""
    with open_bytes(path, progress) as stream:
        rest = b""
        while block := _read(stream, size, path):
            cut = block.rfind(b"\n") + 1
            if cut:
                yield rest + block[:cut]
                rest = block[cut:]
            else:
                rest += block
        if rest:
            yield rest


def _read(stream: BinaryIO, size: int, path: Path) -> bytes:
    try:
        return stream.read(size)
    except (EOFError, gzip.BadGzipFile) as error:
        raise TraceError(path, f"the gzip data is damaged: {error}") from error
    except OSError as error:
        raise TraceError(path, error.strerror or str(error)) from error
