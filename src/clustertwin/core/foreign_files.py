"""Files from elsewhere, read with a budget: a path -> the bytes of a regular file; texts -> JSON and TOML values.

A reader of a job log, a recording or a model cannot know who wrote it. A FIFO would block it for ever, a device or a
huge file would fill the memory, and a deeply nested document would end in an error that nobody expects.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

from clustertwin.core.errors import InputError

#: The latest second that a file may name, in the year 5138. Later ones overflow sums of seconds.
LATEST_S = 10**11


def open_regular(path: Path | str) -> int:
    """A descriptor of a regular file, to read from. `OSError` for a FIFO, a device, a directory or a socket."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: Path | str, most_bytes: int) -> bytes:
    """The content of a regular file. `OSError` if it is larger than the budget, before it is read."""
    with open(open_regular(path), "rb") as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise OSError(errno.EFBIG, f"larger than {most_bytes:,} bytes, which is the limit", str(path))
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {most_bytes:,} bytes, which is the limit", str(path))
    return content


def parse_toml(text: str) -> dict[str, Any]:
    """A TOML document. `ValueError` for any other text, for deep nesting, and for numbers of thousands of digits.

    >>> parse_toml("a = 1")
    {'a': 1}
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("the document is nested too deeply") from None


def read_text(path: Path) -> str:
    """The text of a file that a person named. `InputError` if it cannot be read or is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(path, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise InputError(path, f"not a text: byte {error.start} is not UTF-8") from error


def parse_json(data: bytes) -> Any:
    """A JSON document. `ValueError` for any other text, for deep nesting, and for text that cannot be encoded.

    >>> parse_json(b'{"a": 1}')
    {'a': 1}
    """
    try:
        document = json.loads(data)
        if b"\\ud" in data.lower():  # perhaps one half of a surrogate pair, which no page and no log can show
            json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("the document is nested too deeply") from None
    return document
